"""The commands of the command line. Modules of their own hold the work."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsdplint.cli.options import (
    GivenPath,
    Sections,
    cache_options,
    complete_rules,
    file_options,
    force_option,
    output_file_option,
    output_options,
    project_option,
    rule_options,
    section,
    settings_options,
    target_option,
    unsafe_option,
)
from fsdplint.cli.streams import FAILED, fail, streams
from fsdplint.version import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_ELSEWHERE = ("migrate", "plan", "prove", "run", "server", "skill", "validate")
_FIRST = ("check", "migrate", "plan", "validate", "prove", "run", "rule", "baseline", "clean")
_ORDER = {name: n for n, name in enumerate(_FIRST)}


class DefaultCheck(click.Group):
    """A group whose command may be left out: `fsdplint train.py` is `fsdplint check train.py`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        if args and args[0] not in self.list_commands(ctx) and args[0] not in own:
            self._refuse_mistyped(ctx, args[0])
            args = ["check", *args]
        return super().parse_args(ctx, args)

    def _refuse_mistyped(self, ctx: click.Context, name: str) -> None:
        """Refuse a word that is no path and nearly a command."""
        if not name[:1].isalpha() or not name.replace("-", "").isalpha() or os.path.lexists(name):
            return
        from difflib import get_close_matches

        close = get_close_matches(name, self.list_commands(ctx), n=1, cutoff=0.7)
        if close:
            raise click.UsageError(
                f"{name!r} is no command, file or folder. Did you mean {close[0]!r}?", ctx
            )

    def main(self, *args: Any, **extra: Any) -> Any:
        with streams():  # click itself reports wrong options
            return super().main(*args, **extra)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with streams():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with streams():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        known = {*super().list_commands(ctx), *_ELSEWHERE}
        return sorted(known, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the commands, and the arguments of `check`, whose name may be left out."""
        found = super().shell_complete(ctx, incomplete)
        known = {item.value for item in found}
        of_check = check.shell_complete(ctx, incomplete)
        of_check += check.params[0].shell_complete(ctx, incomplete)  # its paths
        return [*found, *(item for item in of_check if item.value not in known)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in ("prove", "run"):
            return _running_command(name)
        if name == "migrate":
            from fsdplint.cli.migrate import migrate_command

            return migrate_command
        if name == "plan":
            from fsdplint.cli.plan import plan_command

            return plan_command
        if name == "validate":
            from fsdplint.cli.validate import validate_command

            return validate_command
        if name == "skill":
            from fsdplint.cli.skill import skill_command

            return skill_command
        if name == "server":
            from fsdplint.server.command import server_command

            return server_command
        return super().get_command(ctx, name)


@click.group(
    cls=DefaultCheck,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`fsdplint PATHS...` is short for `fsdplint check PATHS...`.",
)
@click.version_option(__version__, "-V", "--version", message="fsdplint %(version)s")
def main() -> None:
    """Check, migrate and prove PyTorch FSDP training programs."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


@main.command(cls=Sections, short_help="Check files and folders, and fix them.")
@click.argument("paths", nargs=-1, type=GivenPath(allow_dash=True))
@section("Fixing")
@click.option("--fix/--no-fix", default=False, help="Apply the fixes to the files.")
@unsafe_option("fixes")
@project_option("fixes")
@click.option("--diff", is_flag=True, help="Show what --fix would change; write nothing.")
@click.option(
    "--fix-only", is_flag=True, help="Apply the fixes; do not report the remaining findings."
)
@click.option("--show-fixes", is_flag=True, help="List the findings that were fixed.")
@click.option(
    "--exit-non-zero-on-fix",
    is_flag=True,
    help="Exit with 1 if a finding was fixed, even if none remains.",
)
@section("Rules")
@rule_options
@target_option
@section("Known findings")
@click.option("--add-noqa", is_flag=True, help="Add a `noqa` comment to every line with a finding.")
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Report only findings that are not in this file (see `fsdplint baseline`).",
)
@click.option("--no-baseline", is_flag=True, help="Report the findings in the baseline too.")
@click.option("--ignore-noqa", is_flag=True, help="Report what comments turn off too.")
@section("Files")
@settings_options
@click.option(
    "--force-exclude/--no-force-exclude",
    default=None,
    help="Apply `exclude` to the given paths too.",
)
@click.option(
    "--stdin-filename",
    type=click.Path(path_type=Path),
    help="The name of the file on standard input.",
)
@cache_options
@click.option("--show-files", is_flag=True, help="List the files that would be checked.")
@click.option("--show-settings", is_flag=True, help="Show the settings of the first file.")
@section("Output")
@output_options
@file_options
@click.option(
    "--coverage",
    is_flag=True,
    help="Show, instead of the findings, which calls of the FSDP API the check reached, and why "
    "not the others.",
)
@click.option("-w", "--watch", is_flag=True, help="Run again whenever a file changes.")
@click.option("-q", "--quiet", is_flag=True, help="Write the findings only, without a summary.")
@click.option("-v", "--verbose", is_flag=True, help="Write what the check works with, too.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="The largest number of processes.  [default: one for each processor]",
)
def check(
    paths: tuple[Path, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    extend_select: tuple[str, ...],
    extend_ignore: tuple[str, ...],
    exclude: tuple[str, ...],
    extend_exclude: tuple[str, ...],
    stdin_filename: Path | None,
    watch: bool,
    **values: Any,
) -> None:
    """Check files and folders (by default the current folder); `-` reads standard input.

    RULES is a comma-separated list of codes, prefixes of codes, names, or ALL.

    Exit codes: 0 if there are no findings or all were fixed; 1 if there are findings, or with
    --diff a diff; 2 if something could not be checked.
    """
    from fsdplint.cli.check import Job
    from fsdplint.config.command_line import CommandLine
    from fsdplint.diagnostics.codes import split
    from fsdplint.engine.session import STDIN

    _refuse_together(values, watch, stdin=Path("-") in paths)
    names = (
        *("output_format", "unsafe_fixes", "force_exclude", "target_torch", "project"),
        *("baseline", "no_baseline", "config", "isolated", "ignore_noqa"),
    )
    settings = {name: values.pop(name) for name in names}
    command_line = CommandLine(
        select=split(select),
        ignore=split(ignore),
        extend_select=split(extend_select),
        extend_ignore=split(extend_ignore),
        exclude=split(exclude),
        extend_exclude=split(extend_exclude),
        **settings,
    )
    stdin = None
    if Path("-") in paths:
        if len(paths) > 1:
            raise click.UsageError("`-` (standard input) cannot be combined with other paths.")
        paths = (stdin_filename or STDIN,)
        stdin = _standard_input()
    elif stdin_filename is not None:
        raise click.UsageError("--stdin-filename can only be used with `-` (standard input).")
    values["fix"] = values["fix"] or values["fix_only"]
    values["output"] = values.pop("output_file")
    job = Job(paths or (Path(),), command_line, stdin, **values)
    if watch:
        from fsdplint.cli.watch import watch as run_again

        run_again(job.paths, lambda: _do(job), command_line)
        return
    sys.exit(_do(job))


def _standard_input() -> bytes:
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        fail(f"standard input cannot be read: {error.strerror or error}")


def _refuse_together(values: dict[str, Any], watch: bool, stdin: bool) -> None:
    """Refuse options that contradict each other."""
    pairs = [
        ("--exit-zero", values["exit_zero"], "--exit-non-zero-on-fix", "exit_non_zero_on_fix"),
        ("--diff", values["diff"], "--add-noqa", "add_noqa"),
        ("--fix", values["fix"] or values["fix_only"], "--add-noqa", "add_noqa"),
        ("--watch", watch, "--add-noqa", "add_noqa"),
        ("`-`", stdin, "--add-noqa", "add_noqa"),
        ("--coverage", values["coverage"], "--statistics", "statistics"),
        ("--fix", values["fix"] or values["fix_only"], "--coverage", "coverage"),
        ("--diff", values["diff"], "--coverage", "coverage"),
        ("--add-noqa", values["add_noqa"], "--coverage", "coverage"),
        ("--baseline", values["baseline"] is not None, "--no-baseline", "no_baseline"),
        ("--config", values["config"] is not None, "--isolated", "isolated"),
        ("--quiet", values["quiet"], "--verbose", "verbose"),
    ]
    for name, given, other, key in pairs:
        if given and values[key]:
            raise click.UsageError(f"{name} cannot be used with {other}.")
    if watch and stdin:
        raise click.UsageError("`-` cannot be used with --watch.")


def _do(job: Any) -> int:
    from fsdplint.cli.check import do

    return _run_guarded(lambda: do(job))


def _run_guarded(work: Callable[[], int]) -> int:
    """Do the work; an error that the user can mend becomes a message."""
    from fsdplint.cli.overwriting import OverwriteError
    from fsdplint.config.settings import SettingsError
    from fsdplint.edits.journal import Interrupted

    try:
        return work()
    except (SettingsError, Interrupted, OverwriteError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        click.echo("error: interrupted", err=True)
        sys.stdout.flush()
        os._exit(FAILED)  # the thread that does the work cannot be stopped in any other way


@main.command(short_help="Record the current findings, so that only new ones are reported.")
@click.argument("paths", nargs=-1, type=GivenPath())
@rule_options
@output_file_option(
    "The file to write.  [default: `baseline` of the settings, or fsdplint-baseline.json]"
)
@force_option
def baseline(
    paths: tuple[Path, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    extend_select: tuple[str, ...],
    extend_ignore: tuple[str, ...],
    output_file: Path | None,
    force: bool,
) -> None:
    """Record the findings in files and folders (by default the current folder) in a file.

    With `fsdplint --baseline FILE`, or `baseline = "FILE"` in the settings, only findings that are
    not in this file are reported. A finding stays known if its lines move.
    """
    from fsdplint.cli.check import Job, record_baseline
    from fsdplint.config.command_line import CommandLine
    from fsdplint.diagnostics.codes import split

    command_line = CommandLine(
        select=split(select),
        ignore=split(ignore),
        extend_select=split(extend_select),
        extend_ignore=split(extend_ignore),
        no_baseline=True,
    )
    job = Job(paths or (Path(),), command_line, output=output_file, force=force)
    sys.exit(_run_guarded(lambda: record_baseline(job)))


@main.command(short_help="Remove the caches of projects.")
@click.argument("paths", nargs=-1, type=GivenPath())
def clean(paths: tuple[Path, ...]) -> None:
    """Remove the caches of the projects of files and folders (by default the current folder)."""
    from fsdplint.cli.caches import remove_caches

    sys.exit(_run_guarded(lambda: remove_caches(paths or (Path(),))))


@main.command(short_help="Print a script that makes a shell complete the commands.")
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
def generate_shell_completion(shell: str) -> None:
    """Print a completion script for SHELL, for its start-up file."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "fsdplint", "_FSDPLINT_COMPLETE").source())


@main.command()
@click.argument("rule", metavar="[RULE]", required=False, shell_complete=complete_rules)
@click.option("--all", "every", is_flag=True, help="Explain all rules.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="The format; markdown prints a table.",
)
def rule(rule: str | None, every: bool, output_format: str) -> None:
    """Explain a rule, given by its code or name."""
    from fsdplint.registry.rules import documented_rules, rule_by_code
    from fsdplint.report import pages

    if (rule is None) == (not every):
        raise click.UsageError("Give either one rule or --all.")
    if rule is None:
        rules = list(documented_rules())
    else:
        one = rule_by_code(rule)
        if one is None:
            from fsdplint.diagnostics.codes import UnknownRuleError, resolve

            try:
                resolve(rule)
            except UnknownRuleError as error:
                fail(str(error))
            fail(f"{rule!r} matches several rules; `fsdplint rule --all` lists the rules")
        rules = [one]
    if output_format == "json":
        data = [pages.as_data(one) for one in rules]
        click.echo(json.dumps(data if every else data[0], indent=2))
        return
    if output_format == "markdown":
        click.echo(pages.rule_table(rules))
        return
    for number, one in enumerate(rules):
        if number:
            click.echo("")
        for line in pages.text(one):
            click.echo(line)


def _running_command(name: str) -> click.Command:
    """A command that runs programs; it reports itself if torch is missing."""
    from fsdplint.cli.prove import prove_command, run_command

    return prove_command if name == "prove" else run_command
