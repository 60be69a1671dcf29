"""The editor's documents: files, and the cells of notebooks.

A notebook is checked as one document with the text of its file (see `fsdplint.source.notebooks`),
and findings have places in the code of all cells. The editor, however, knows only single cells.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fsdplint.diagnostics.finding import Edit
from fsdplint.server.analysis import FileFinding, line_edits
from fsdplint.server.schedule import Document
from fsdplint.source.notebooks import Notebook, NotebookError, NotebookSource
from fsdplint.trace import FixedSite, Location

_MASK = "__fsdplint_"  # the beginning of the names that replace lines which are not Python


@dataclass
class Cell:
    """A cell in the editor; `code` says whether it holds Python."""

    uri: str
    version: int
    text: str
    code: bool = True


@dataclass
class NotebookDocument(Document):
    """A notebook that is open in the editor. Its text is built from its cells."""

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

    def in_cell(self, item: FileFinding) -> tuple[int, FileFinding]:
        """The number (from 0) of a finding's cell, and the finding at its place in the cell."""
        number, place = self.place(item.at)
        finding = replace(item.finding, site=FixedSite(place))
        return number, FileFinding(finding, self.cells[number].text)

    def place(self, at: Location) -> tuple[int, Location]:
        """The cell, and the place in it, of a place in the code of all cells."""
        number, line = self.source.cell_of(at.line)
        end_number, end_line = self.source.cell_of(at.end_line or at.line)
        end_column = at.end_column
        if end_number != number:
            end_line, end_column = line, at.column
        return number - 1, replace(at, line=line, end_line=end_line, end_column=end_column)

    def cell_edits(self, edits: Iterable[Edit]) -> dict[int, list[Edit]] | None:
        """Edits of the code of all cells as edits of single cells, by cell.

        None if an edit spans several cells or touches lines that are not Python.
        """
        by_cell: dict[int, list[Edit]] = {}
        for edit in edits:
            start, end = self.source.position(edit.start), self.source.position(edit.end)
            number, line = self.source.cell_of(start[0])
            end_number, end_line = self.source.cell_of(end[0])
            replaced = self.source.text[edit.start : edit.end]
            if number != end_number or _MASK in edit.text or _MASK in replaced:
                return None
            text, cell = edit.text, self.cells[number - 1].text
            starts = [0, *(n + 1 for n, character in enumerate(cell) if character == "\n")]
            if line > len(starts):  # after a last line without a line end
                first, text = len(cell), "\n" + text.removesuffix("\n")
            else:
                first = starts[line - 1] + start[1] - 1
            last = starts[end_line - 1] + end[1] - 1 if end_line <= len(starts) else len(cell)
            new = Edit(edit.path, min(first, len(cell)), min(max(first, last), len(cell)), text)
            by_cell.setdefault(number - 1, []).append(new)
        return by_cell

    def cell_changes(self, old: str, new: str) -> dict[int, list[Edit]] | None:
        """The edits, by cell, that turn the notebook `old` into `new`; None if cells differ."""
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
        document: the document that is checked: the file, or the notebook of the cell.
        text: the text in the editor.
        findings: each finding at its place in the editor, and at its place in `document`.
    """

    document: Document
    text: str
    findings: Sequence[tuple[FileFinding, FileFinding]]

    def overlapping(self, first: int, last: int) -> list[FileFinding]:
        """The findings that overlap these lines of the editor's document (from 1)."""
        return [
            item
            for local, item in self.findings
            if local.at.line <= last and first <= (local.at.end_line or 0)
        ]

    def in_editor(self, item: FileFinding) -> FileFinding:
        """A finding of `document` at its place in the editor."""
        if not isinstance(self.document, NotebookDocument):
            return item
        return self.document.in_cell(item)[1]


def views(document: Document, findings: Sequence[FileFinding]) -> Mapping[str, View]:
    """The editor's documents that a document consists of, by URI."""
    if not isinstance(document, NotebookDocument):
        return {document.uri: View(document, document.text, [(item, item) for item in findings])}
    by_cell: dict[int, list[tuple[FileFinding, FileFinding]]] = {}
    for item in findings:
        number, local = document.in_cell(item)
        by_cell.setdefault(number, []).append((local, item))
    return {
        cell.uri: View(document, cell.text, by_cell.get(number, ()))
        for number, cell in enumerate(document.cells)
        if cell.code
    }
