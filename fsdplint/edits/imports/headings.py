"""Comments above imports that are removed, where nothing else is below them.

A comment with the removed imports is a paragraph of its own: blank lines are around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from fsdplint.diagnostics.finding import Edit
from fsdplint.source.source import Source
from fsdplint.syntax import layout


def without_headings(source: Source, removed: Iterable[cst.CSTNode]) -> Iterator[Edit]:
    """The edits that delete such comments, with the blank lines above them."""
    lines: dict[int, int] = {}  # the start of each removed line, and the start of the next line
    for statement in removed:
        if isinstance(source.parent(statement), cst.SimpleStatementLine):
            start, end = source.span(layout.line_of(source, statement))
            lines[source.line_start(start)] = layout.line_end(source, end)[1]
    for start, end in lines.items():
        while end in lines:
            end = lines[end]
        top = _start_of_paragraph(source, start)
        if top is not None and (layout.blank_lines_after(source, end) or end == len(source.text)):
            yield Edit(source.path, top, start, "")


def _start_of_paragraph(source: Source, start: int) -> int | None:
    """Where the blank lines above the comments above a line begin; None without such comments."""
    top, comments = start, 0
    while top and (text := _line_above(source, top)).startswith("#"):
        if layout.PRAGMA.match(text):
            return None
        top, comments = source.line_start(top - 1), comments + 1
    if not comments or not top or _line_above(source, top):
        return None
    while top and not _line_above(source, top):
        top = source.line_start(top - 1)
    return top or None


def _line_above(source: Source, start: int) -> str:
    return source.text[source.line_start(start - 1) : start].strip()
