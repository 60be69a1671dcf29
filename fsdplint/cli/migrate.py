"""The command `fsdplint migrate`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsdplint.cli.options import (
    FILE_TO_WRITE,
    GivenPath,
    colour_option,
    exit_zero_option,
    force_option,
    project_option,
    settings_options,
    target_option,
    unsafe_option,
)
from fsdplint.cli.streams import CLEAN, FAILED, FOUND, fail

if TYPE_CHECKING:
    from fsdplint.engine.migration import Contents, Migrated
    from fsdplint.migration.report.model import Report, Section

SUFFIXES = {".md": "markdown", ".markdown": "markdown", ".json": "json"}


def _suffix(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix.lower() not in SUFFIXES:
        raise click.BadParameter("the name must end in .md or .json")
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder {value.parent} does not exist")
    return value


@click.command("migrate", short_help="Report on the migration to FSDP2, or perform it.")
@click.argument("paths", nargs=-1, type=GivenPath())
@click.option(
    "--fix", is_flag=True, help="Write the migrated files; without this option no file changes."
)
@click.option("--diff", is_flag=True, help="Show what --fix would change; write nothing.")
@click.option(
    "-i",
    "--interactive",
    is_flag=True,
    help="Show the changes to files that belong together, and ask for each set whether to write.",
)
@unsafe_option("rewrites", "unsafe")
@project_option("the migration")
@click.option(
    "--report",
    "report_file",
    type=FILE_TO_WRITE,
    callback=_suffix,
    metavar="FILE",
    help="Write the report to FILE (.md or .json), and print a summary.",
)
@force_option
@click.option(
    "--annotate",
    is_flag=True,
    help="Mark each blocker with a comment in the files; remove outdated marks.",
)
@click.option(
    "--assist",
    is_flag=True,
    help="Rewrite blocked programs in part: code that needs a decision raises.",
)
@target_option
@settings_options
@colour_option
@exit_zero_option("FSDP1 remains")
def migrate_command(
    paths: tuple[Path, ...],
    fix: bool,
    diff: bool,
    interactive: bool,
    unsafe: bool | None,
    project: bool,
    report_file: Path | None,
    force: bool,
    annotate: bool,
    assist: bool,
    target_torch: str | None,
    exclude: tuple[str, ...],
    extend_exclude: tuple[str, ...],
    config: Path | None,
    isolated: bool,
    colour: str,
    exit_zero: bool,
) -> None:
    """Report on the migration of files and folders (by default the current folder) to FSDP2.

    For each program, the report lists the rewrites and their reasons, the blockers, the decisions
    to take, the changes in behaviour or cost, and the command that proves the migration. A program
    is migrated as a whole or not at all; --fix migrates the programs without blockers. With
    --assist, blocked programs are rewritten in part.

    Exit codes: 0 if no FSDP1 remains; 1 if some remains, blocked or not written yet; 2 if something
    could not be read or written.
    """
    from fsdplint.cli.overwriting import OverwriteError, refuse_overwriting
    from fsdplint.cli.progress import progress_line
    from fsdplint.config.command_line import CommandLine
    from fsdplint.config.settings import SettingsError
    from fsdplint.diagnostics.codes import split
    from fsdplint.edits.journal import Interrupted
    from fsdplint.edits.write import WriteError
    from fsdplint.engine.migration import MigrationRun

    if interactive and (fix or diff or annotate):
        raise click.UsageError("--interactive cannot be used with --fix, --diff or --annotate.")
    if diff and (fix or annotate or report_file is not None):
        raise click.UsageError("--diff cannot be used with --fix, --annotate or --report.")
    try:
        if report_file is not None:
            refuse_overwriting(report_file, "migration report", force=force)
        with progress_line():
            run = MigrationRun(
                paths or (Path(),),
                target_torch,
                project=project,
                unsafe=unsafe,
                writes=fix or annotate or interactive,
                assist=assist,
                files=CommandLine(
                    exclude=split(exclude),
                    extend_exclude=split(extend_exclude),
                    config=config,
                    isolated=isolated,
                ),
            )
            migrated = run.migrate(
                fix=fix or diff or interactive,
                annotate=annotate,
                accept=_ask if interactive else None,
            )
        if diff:
            _show_diff(migrated)
        else:
            _write(migrated)
            if interactive and report_file is None:
                _show_summary(migrated.report)
            else:
                _show(migrated.report, report_file, colour)
    except (SettingsError, Interrupted, OverwriteError, WriteError) as error:
        text = error.strerror if isinstance(error, WriteError) else None
        fail(text or str(error))
    except KeyboardInterrupt:
        click.echo("error: interrupted", err=True)
        sys.stdout.flush()
        os._exit(FAILED)  # the thread that does the work cannot be stopped in any other way
    if migrated.report.problems:
        sys.exit(FAILED)
    if diff and migrated.contents and not exit_zero:
        sys.exit(FOUND)
    sys.exit(FOUND if migrated.report.uses_fsdp1 and not exit_zero else CLEAN)


def _write(migrated: Migrated) -> None:
    """Write the changed files, all or none."""
    from fsdplint.edits.write import NewContent, write

    if migrated.contents:
        write([NewContent(str(p), old, new) for p, (old, new) in migrated.contents.items()])


def _ask(sections: Sequence[Section], contents: Contents) -> bool:
    """Show the changes to files that belong together, and ask whether they are wanted."""
    from fsdplint.cli.progress import stop_line
    from fsdplint.report.notes import note_lines

    stop_line()
    _show_contents(contents)
    for line in note_lines([one for section in sections for one in section.remarks]):
        click.echo(line)
    names = ", ".join(dict.fromkeys(section.title for section in sections if section.is_written))
    return click.confirm(f"Migrate {names}?", default=False)


def _show_contents(contents: Contents) -> None:
    """Show the changes to files as a diff."""
    from fsdplint.report.unified_diff import unified_diff

    for path, (old, new) in contents.items():
        texts = (text.decode("utf-8", "backslashreplace") for text in (old, new))
        click.echo(unified_diff(str(path), *texts), nl=False)


def _show_summary(report: Report) -> None:
    from fsdplint.cli.output import show_problems
    from fsdplint.migration.report.model import summary

    show_problems(report.problems)
    for line in summary(report):
        click.echo(line)


def _show_diff(migrated: Migrated) -> None:
    """Show the changes, and on standard error what is not among them."""
    from fsdplint.cli.output import show_problems
    from fsdplint.migration.report.as_text import blocked_lines, outside_lines
    from fsdplint.migration.report.model import summary

    _show_contents(migrated.contents)
    show_problems(migrated.report.problems)
    migrated.report.wrote = False
    report = migrated.report
    for line in (*blocked_lines(report), *outside_lines(report), *summary(report)):
        click.echo(line, err=True)


def _show(report: Report, file: Path | None, colour: str) -> None:
    from fsdplint.cli.output import show_problems
    from fsdplint.edits.atomic_file import save
    from fsdplint.migration.report import as_json, as_markdown, as_text
    from fsdplint.migration.report.model import summary
    from fsdplint.report.terminal import colours

    for line in report.warnings:
        click.echo(line, err=True)
    if file is None:
        coloured = colours(colour, sys.stdout)
        for line in as_text.write(report, colour=coloured):
            click.echo(line, color=coloured or None)
        return
    writer = as_json if SUFFIXES[file.suffix.lower()] == "json" else as_markdown
    content = "".join(f"{line}\n" for line in writer.write(report)).encode("utf-8")
    try:
        save(file, content)
    except OSError as error:
        fail(f"{file}: cannot be written: {error.strerror or error}")
    show_problems(report.problems)
    for line in [*summary(report), f"The report is in {file}."]:
        click.echo(line)
