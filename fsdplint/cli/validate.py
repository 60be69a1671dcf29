"""The command `fsdplint validate`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsdplint.cli.options import exit_zero_option
from fsdplint.cli.streams import CLEAN, FAILED, FOUND, fail

if TYPE_CHECKING:
    from fsdplint.comparison.result import Result
    from fsdplint.engine.comparing import Side


@click.command("validate", short_help="Compare a migration with the program that it migrates.")
@click.argument("before")
@click.argument("after")
@click.argument("paths", nargs=-1)
@click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The format of the report.",
)
@exit_zero_option("something differs")
def validate_command(
    before: str, after: str, paths: tuple[str, ...], output_format: str, exit_zero: bool
) -> None:
    """Compare a migration to FSDP2 with the program that it migrates, without running either.

    BEFORE and AFTER are files or folders, or revisions of git: `main`, or `main:train.py`. PATHS
    limit the comparison of two revisions to these files and folders. A revision that is compared
    with a file or folder is limited to what it has in the same place.

    Exit codes: 0 if nothing differs; 1 if something differs; 2 if the programs could not be
    compared.
    """
    from fsdplint.cli.progress import progress_line
    from fsdplint.comparison.result import as_json, as_text
    from fsdplint.config.settings import SettingsError
    from fsdplint.edits.journal import Interrupted
    from fsdplint.engine.revisions import RevisionError
    from fsdplint.runtime.launch.workplace import WorkplaceError

    try:
        with progress_line():
            result = _compare(before, after, paths)
    except (RevisionError, SettingsError, WorkplaceError, Interrupted) as error:
        fail(str(error))
    for line in (as_json if output_format == "json" else as_text)(result):
        click.echo(line)
    if result.errors or result.says_nothing:
        sys.exit(FAILED)
    differs = any(one.outcome.value == "differs" for one in result.facts)
    sys.exit(FOUND if differs and not exit_zero else CLEAN)


def _compare(before: str, after: str, paths: tuple[str, ...]) -> Result:
    from fsdplint.engine.comparing import compare_sides

    with ExitStack() as stack:
        old = _side(stack, before, paths, after)
        return compare_sides(old, _side(stack, after, paths, before, old))


def _side(
    stack: ExitStack, name: str, paths: tuple[str, ...], other: str, before: Side | None = None
) -> Side:
    """A program on disk, or as a revision of git has it.

    other: the name of the program that it is compared with; before: that program, if it is first.
    """
    from fsdplint.engine.comparing import side
    from fsdplint.engine.revisions import RevisionError, extract
    from fsdplint.runtime.launch.workplace import workplace

    if Path(name).exists():
        if paths:
            raise RevisionError(f"{name} is a path; further paths are for two revisions of git")
        return side(Path(name), before=before)
    folder = stack.enter_context(workplace("validate", None))
    revision, _, path = name.partition(":")
    extract(revision, folder)
    inside = []
    for one in [path] if path else paths:
        file = folder / one if path else _in_revision(folder, one)
        if file is None or not file.exists():
            raise RevisionError(f"{revision} has no {one}")
        inside.append(file)
    if not inside and Path(other).exists():
        same_place = _in_revision(folder, other)
        inside = [same_place] if same_place is not None and same_place.exists() else []
    return side(folder, inside, label=revision, before=before)


def _in_revision(folder: Path, path: str) -> Path | None:
    """A path of the current folder, in the folder with the files of a revision.

    Returns None if it leads out of the repository.
    """
    from fsdplint.engine.revisions import repository_path

    inside = repository_path(Path(path))
    return None if inside is None else folder / inside
