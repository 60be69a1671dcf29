"""The places that raise after an assisted migration, for its report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.edits import apply
from fsdplint.migration.assisted.open_places import open_places
from fsdplint.migration.report.model import OpenPlace, Section
from fsdplint.migration.report.postconditions import postcondition
from fsdplint.migration.report.proof_commands import validate_command
from fsdplint.report.remarks import Place
from fsdplint.source.notebooks import NotebookSource
from fsdplint.source.source import Source

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Fix
    from fsdplint.interpreter import Program


def of_section(program: Program, section: Section, fix: Fix) -> list[OpenPlace]:
    """The places that raise once a fix is applied."""
    applied = apply.apply(program.files, [fix])
    found = []
    for path in dict.fromkeys([*section.files, *applied.texts]):
        source = program.sources.get(path)
        if source is not None:
            text = applied.texts.get(path, source.text)
            found += of_text(source, text, section.program_of(path))
    return found


def of_sources(sources: Iterable[Source]) -> list[OpenPlace]:
    """The places that raise in some files."""
    return [one for source in sources for one in of_text(source, source.text, source.path)]


def of_text(source: Source, text: str, program: str) -> list[OpenPlace]:
    """The places that raise in a file with a text.

    program: the path of the program that the file belongs to.
    """
    return [
        OpenPlace(
            _at(source, text, one.line),
            one.decision,
            one.reason,
            one.blocker,
            one.old,
            postcondition(one.blocker),
            (shlex.join(["fsdplint", "migrate", program]), validate_command(program)),
        )
        for one in open_places(text)
    ]


def _at(source: Source, text: str, line: int) -> Place:
    if not isinstance(source, NotebookSource):
        return Place(source.path, line)
    number, row = source.with_text(text).cell_of(line)
    return Place(f"{source.path}:cell {number}", row)
