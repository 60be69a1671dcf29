"""The commands of the command line, and nothing else.

Exit codes: 0 nothing found (or all of it fixed), 1 findings or a diff, 2 the job could not be done.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import click

from fsdplint import __version__
from fsdplint.options import FORMATS

CLEAN, FOUND, FAILED = 0, 1, 2


class DefaultCheck(click.Group):
    """A group whose command may be left out: `fsdplint train.py` is `fsdplint check train.py`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        if args and args[0] not in self.list_commands(ctx) and args[0] not in own:
            args = ["check", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), "migrate", "prove", "run"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in ("prove", "run"):
            return _running_command(name)
        if name == "migrate":
            from fsdplint.migration.command import migrate_command

            return migrate_command
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


@main.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--fix", is_flag=True, help="Apply the fixes to the files.")
@click.option(
    "--unsafe-fixes/--no-unsafe-fixes",
    default=None,
    help="Take fixes too that may change what the program does.",
)
@click.option(
    "--project",
    is_flag=True,
    help="Let fixes change other files of the project as well, where they have to change together.",
)
@click.option("--diff", is_flag=True, help="Show what --fix would change; write nothing.")
@click.option("--select", multiple=True, metavar="RULES", help="The rules that are on.")
@click.option("--ignore", multiple=True, metavar="RULES", help="Rules that are off.")
@click.option("--extend-select", multiple=True, metavar="RULES", help="Further rules.")
@click.option(
    "--force-exclude/--no-force-exclude",
    default=None,
    help="Let `exclude` hold for the paths given, too.",
)
@click.option(
    "--target-torch",
    metavar="VERSION",
    help="The oldest torch that the program has to run on.  [default: as the project requires]",
)
@click.option(
    "--output-format", type=click.Choice(FORMATS), help="How findings are shown.  [default: full]"
)
@click.option("-e", "--exit-zero", is_flag=True, help="Exit with 0 also where there are findings.")
@click.option(
    "--stdin-filename",
    type=click.Path(path_type=Path),
    help="The name of the file that is read from standard input.",
)
def check(
    paths: tuple[Path, ...],
    fix: bool,
    unsafe_fixes: bool | None,
    project: bool,
    diff: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    extend_select: tuple[str, ...],
    force_exclude: bool | None,
    target_torch: str | None,
    output_format: str | None,
    exit_zero: bool,
    stdin_filename: Path | None,
) -> None:
    """Check files and folders (by default the current one); `-` is standard input.

    RULES are codes, beginnings of codes, names or ALL, with commas between them.
    """
    from fsdplint.editing.journal import Interrupted
    from fsdplint.run import STDIN, Run
    from fsdplint.selection import split
    from fsdplint.settings import CommandLine, SettingsError

    command_line = CommandLine(
        split(select),
        split(ignore),
        split(extend_select),
        output_format,
        unsafe_fixes,
        force_exclude,
        target_torch,
        project,
    )
    stdin = None
    if Path("-") in paths:
        if len(paths) > 1:
            raise click.UsageError("`-` (standard input) cannot be combined with other paths.")
        paths = (stdin_filename or STDIN,)
        stdin = sys.stdin.buffer.read()
    elif stdin_filename is not None:
        raise click.UsageError("--stdin-filename goes with `-`.")
    try:
        run = Run(paths or (Path(),), command_line, stdin=stdin)
        if diff:
            code = _diff(run)
        elif fix:
            code = _fix(run)
        else:
            result = run.check()
            _report(result, run.settings.output_format)
            code = _exit_code(result.findings, result.problems)
    except (SettingsError, Interrupted) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        click.echo("error: interrupted", err=True)
        sys.stdout.flush()
        os._exit(FAILED)  # the thread that does the work cannot be stopped in any other way
    sys.exit(CLEAN if exit_zero and code == FOUND else code)


def _diff(run: Any) -> int:
    from fsdplint.report.diffs import unified
    from fsdplint.report.result import plural, problem_line

    changes = run.fix()
    for path, (old, new) in changes.texts.items():
        for piece in unified(str(path), old, new):
            click.echo(piece, nl=False)
    result = changes.result
    _warn(result)
    for problem in result.problems:
        click.echo(problem_line(problem), err=True)
    words = [f"would fix {plural(result.fixed, 'finding')}"] if result.fixed else []
    if result.findings:
        words.append(f"{plural(len(result.findings), 'finding')} would remain")
    if words:
        text = ", ".join(words)
        click.echo(f"{text[0].upper()}{text[1:]}.", err=True)
    return _exit_code(changes.texts, result.problems)


def _fix(run: Any) -> int:
    from fsdplint.editing.write import NewContent, WriteError, write

    changes = run.fix()
    if run.stdin is not None:
        contents = [new for _, new in changes.contents.values()] or [run.stdin]
        sys.stdout.buffer.write(contents[0])
        sys.stdout.buffer.flush()
    else:
        try:
            write([NewContent(str(p), old, new) for p, (old, new) in changes.contents.items()])
        except WriteError as error:
            _fail(error.strerror or str(error))
    _report(changes.result, run.settings.output_format, err=run.stdin is not None)
    return _exit_code(changes.result.findings, changes.result.problems)


def _report(result: Any, output_format: str, *, err: bool = False) -> None:
    from fsdplint.editing.nesting import deep_stack
    from fsdplint.report import write

    _warn(result)
    result.colour = (sys.stderr if err else sys.stdout).isatty()
    for line in deep_stack(lambda: list(write(result, output_format))):
        click.echo(line, err=err)


def _warn(result: Any) -> None:
    for line in result.warnings:
        click.echo(line, err=True)


def _exit_code(found: Iterable[object], problems: Iterable[object]) -> int:
    if any(True for _ in problems):
        return FAILED
    return FOUND if any(True for _ in found) else CLEAN


def _fail(message: str) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    sys.exit(FAILED)


@main.command()
@click.argument("rule", metavar="[RULE]", required=False)
@click.option("--all", "every", is_flag=True, help="All rules.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="markdown is a table.",
)
def rule(rule: str | None, every: bool, output_format: str) -> None:
    """Explain a rule, given by its code or name."""
    from fsdplint.report import pages
    from fsdplint.rule import all_rules, rule_by_code

    if (rule is None) == (not every):
        raise click.UsageError("Give one rule, or --all.")
    if rule is None:
        rules = list(all_rules())
    else:
        one = rule_by_code(rule)
        if one is None:
            from fsdplint.selection import UnknownRuleError, resolve

            try:
                resolve(rule)
            except UnknownRuleError as error:
                _fail(str(error))
            _fail(f"{rule!r} is no single rule; `fsdplint rule --all` lists the rules")
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
    """A command that runs programs; it says itself if torch is missing."""
    from fsdplint.shim.command import prove_command, run_command

    return prove_command if name == "prove" else run_command
