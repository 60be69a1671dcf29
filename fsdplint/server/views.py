"""What the editor calls a document: a file, or a cell of a notebook.

A notebook is checked as one document whose text is that of the file (see
`fsdplint.source.notebooks`), so what is found in it stands in the code of all cells. An editor
knows only the cells.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fsdplint.diagnostics.finding import Edit
from fsdplint.server.analysis import Seen, line_edits
from fsdplint.server.schedule import Document
from fsdplint.source.notebooks import Notebook, NotebookError, NotebookSource
from fsdplint.trace import FixedSite, Location

_HIDDEN = "__fsdplint_"  # what lines that are no Python are masked with


@dataclass
class Cell:
    """A cell as it is in the editor; `code` says whether it holds Python."""

    uri: str
    version: int
    text: str
    code: bool = True


@dataclass
class NotebookDocument(Document):
    """A notebook that is open in the editor. Its text is made from its cells."""

    cells: list[Cell] = field(default_factory=list)

    @classmethod
    def of(cls, uri: str, path: str, version: int, cells: Sequence[Cell]) -> NotebookDocument:
        content: list[dict[str, object]] = [
            {
                "cell_type": "code" if cell.code else "markdown",
                "metadata": {},
                "source": cell.text,
            }
            for cell in cells
        ]
        raw = {"cells": content, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        return cls(uri, path, version, json.dumps(raw, ensure_ascii=False), list(cells))

    @cached_property
    def source(self) -> NotebookSource:
        return NotebookSource(self.path, Notebook(self.text))

    @property
    def code(self) -> str:
        return self.source.text

    def shown(self, seen: Seen) -> tuple[int, Seen]:
        """The number of the cell (from 0) that a finding is in, and the finding with its place."""
        number, place = self.place(seen.at)
        return number, Seen(replace(seen.finding, site=FixedSite(place)), self.cells[number].text)

    def place(self, at: Location) -> tuple[int, Location]:
        """The cell and the place in it of a place in the code of all cells."""
        number, line = self.source.cell_of(at.line)
        end_number, end_line = self.source.cell_of(at.end_line or at.line)
        end_column = at.end_column
        if end_number != number:
            end_line, end_column = line, at.column
        return number - 1, replace(at, line=line, end_line=end_line, end_column=end_column)

    def cell_edits(self, edits: Iterable[Edit]) -> dict[int, list[Edit]] | None:
        """Edits of the code of all cells as edits of cells; None where one is of several cells, or
        has to do with lines that are no Python."""
        found: dict[int, list[Edit]] = {}
        for edit in edits:
            start, end = self.source.position(edit.start), self.source.position(edit.end)
            number, line = self.source.cell_of(start[0])
            end_number, end_line = self.source.cell_of(end[0])
            replaced = self.source.text[edit.start : edit.end]
            if number != end_number or _HIDDEN in edit.text or _HIDDEN in replaced:
                return None
            text, cell = edit.text, self.cells[number - 1].text
            starts = [0, *(n + 1 for n, character in enumerate(cell) if character == "\n")]
            if line > len(starts):  # behind a last line that does not end
                first, text = len(cell), "\n" + text.removesuffix("\n")
            else:
                first = starts[line - 1] + start[1] - 1
            last = starts[end_line - 1] + end[1] - 1 if end_line <= len(starts) else len(cell)
            new = Edit(edit.path, min(first, len(cell)), min(max(first, last), len(cell)), text)
            found.setdefault(number - 1, []).append(new)
        return found

    def cell_changes(self, old: str, new: str) -> dict[int, list[Edit]] | None:
        """What makes the cells of one notebook's file those of another."""
        try:
            before, after = Notebook(old), Notebook(new)
        except NotebookError:
            return None
        if [one.number for one in before.cells] != [one.number for one in after.cells]:
            return None
        pairs = zip(before.cells, after.cells, strict=True)
        edits = {a.number - 1: line_edits(self.path, a.text, b.text) for a, b in pairs}
        return {number: several for number, several in edits.items() if several}


@dataclass(frozen=True)
class View:
    """A document of the editor.

    Attributes:
        document: what is checked.
        text: what the editor shows.
        found: what is found in it, as it is shown and as it was found.
    """

    document: Document
    text: str
    found: Sequence[tuple[Seen, Seen]]

    def touched(self, first: int, last: int) -> list[Seen]:
        """What was found that touches these lines (from 1)."""
        return [
            seen
            for shown, seen in self.found
            if shown.at.line <= last and first <= (shown.at.end_line or 0)
        ]

    def shown(self, seen: Seen) -> Seen:
        if not isinstance(self.document, NotebookDocument):
            return seen
        return self.document.shown(seen)[1]


def views(document: Document, found: Sequence[Seen]) -> Mapping[str, View]:
    """The editor's documents that one consists of, by their addresses."""
    if not isinstance(document, NotebookDocument):
        return {document.uri: View(document, document.text, [(seen, seen) for seen in found])}
    by_cell: dict[int, list[tuple[Seen, Seen]]] = {}
    for seen in found:
        number, shown = document.shown(seen)
        by_cell.setdefault(number, []).append((shown, seen))
    return {
        cell.uri: View(document, cell.text, by_cell.get(number, ()))
        for number, cell in enumerate(document.cells)
        if cell.code
    }
