"""Options that several commands share, and help texts with sections."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fsdplint.config.options import FORMATS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

FILE_TO_WRITE = click.Path(path_type=Path, dir_okay=False)

F = TypeVar("F", bound=Callable[..., Any])


class GivenPath(click.Path):
    """A file or folder to check. An empty text (an unset variable of a shell) is refused: as a path
    it would be the current folder."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(path_type=Path, allow_dash=allow_dash)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        if value == "":
            self.fail("'': no such file or folder", param, ctx)
        return super().convert(value, param, ctx)


class Sections(click.Command):
    """A command whose help lists the options in the sections that `section` begins."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        titles: dict[str, str] = getattr(self.callback, "_sections", {})
        sections: dict[str, list[tuple[str, str]]] = {}
        title = "Options"
        for parameter in self.get_params(ctx):
            title = titles.get(parameter.name or "", title)
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                last = "Options" if "--help" in parameter.opts else title
                sections.setdefault(last, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def section(title: str) -> Callable[[F], F]:
    """Begin a section of the help with the options below."""

    def decorate(command: F) -> F:
        parameters = getattr(command, "__click_params__", [])
        titles = getattr(command, "_sections", {})
        titles[parameters[-1].name] = title  # the nearest option comes last
        command._sections = titles  # type: ignore[attr-defined]
        return command

    return decorate


def all_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order of the help."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def complete_rules(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completions for codes and names of rules."""
    from click.shell_completion import CompletionItem

    from fsdplint.diagnostics.codes import known_rules

    done, comma, last = incomplete.rpartition(",")
    return [
        CompletionItem(f"{done}{comma}{code}", help=name)
        for code, name in known_rules().items()
        if code.startswith(last.upper()) or name.startswith(last.lower())
    ]


def _select(name: str, text: str) -> Callable[[F], F]:
    return click.option(
        name, multiple=True, metavar="RULES", help=text, shell_complete=complete_rules
    )


rule_options = all_of(
    _select("--select", "Enable only these rules."),
    _select("--ignore", "Disable these rules."),
    _select("--extend-select", "Enable these rules too."),
    _select("--extend-ignore", "Disable these rules too."),
)


def _patterns(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, multiple=True, metavar="PATTERNS", help=text)


settings_options = all_of(
    _patterns("--exclude", "Leave out these paths instead of those of the settings."),
    _patterns("--extend-exclude", "Leave out these paths too."),
    click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        metavar="FILE",
        help="Take the settings from this file for all files.",
    ),
    click.option("--isolated", is_flag=True, help="Ignore all settings files."),
)

colour_option = click.option(
    "--color",
    "colour",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    help="When to use colours.  [default: auto, on a terminal]",
)

target_option = click.option(
    "--target-torch",
    metavar="VERSION",
    help="The oldest torch that the program must run on.  [default: from the requirements]",
)

force_option = click.option(
    "--force",
    is_flag=True,
    help="Overwrite the report's file even if it is not an earlier report.",
)


def unsafe_option(what: str, *name: str) -> Callable[[F], F]:
    """The option for fixes or rewrites that are not safe."""
    return click.option(
        "--unsafe-fixes/--no-unsafe-fixes",
        *name,
        default=None,
        help=f"Include {what} that may change the program's behaviour.",
    )


def project_option(who: str) -> Callable[[F], F]:
    """The option for changes to other files of the project."""
    return click.option(
        "--project",
        is_flag=True,
        help=f"Allow {who} to change files of the project that were not given.",
    )


def exit_zero_option(condition: str) -> Callable[[F], F]:
    """The option for the exit code 0 in spite of findings."""
    return click.option("-e", "--exit-zero", is_flag=True, help=f"Exit with 0 even if {condition}.")


def output_file_option(text: str, envvar: str | None = None) -> Callable[[F], F]:
    """The option for the file that is written."""
    return click.option(
        "-o",
        "--output-file",
        type=FILE_TO_WRITE,
        envvar=envvar,
        metavar="FILE",
        help=text,
    )


file_options = all_of(
    output_file_option("Write the report to this file.", "FSDPLINT_OUTPUT_FILE"),
    force_option,
    click.option("--statistics", is_flag=True, help="Show the number of findings of each rule."),
)

cache_options = all_of(
    click.option(
        "-n",
        "--no-cache",
        is_flag=True,
        envvar="FSDPLINT_NO_CACHE",
        help="Neither read nor write cached results.",
    ),
    click.option(
        "--cache-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="FSDPLINT_CACHE_DIR",
        metavar="FOLDER",
        help="The folder of the cache.  [default: .fsdplint_cache in the project]",
    ),
)

output_options = all_of(
    click.option(
        "--output-format",
        type=click.Choice(FORMATS),
        envvar="FSDPLINT_OUTPUT_FORMAT",
        help="The format of the report.  [default: full]",
    ),
    colour_option,
    exit_zero_option("there are findings"),
)
