"""Locations in notebooks: cell and line for people, lines of the file for programs.

Findings refer to the code of all cells as one text (see `fsdplint.source.notebooks`). A report for
people refers to `train.ipynb:cell 3` and the lines of that cell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fsdplint.diagnostics.finding import Edit, Finding, Fix
from fsdplint.report.result import Result
from fsdplint.trace import FixedSite, Location

if TYPE_CHECKING:
    from fsdplint.source.notebooks import NotebookSource
    from fsdplint.source.source import Source

# Formats that name cells; programs that know only files read the other formats.
BY_CELL = (
    *("full", "concise", "grouped", "pylint", "markdown"),
    *("json", "json-lines", "json-full"),
)
_CELL = re.compile(r"(.*\.ipynb):cell (\d+)", re.DOTALL)


def split(path: str) -> tuple[str, int | None]:
    """The file, and the cell if the path names one."""
    match = _CELL.fullmatch(path)
    return (match.group(1), int(match.group(2))) if match is not None else (path, None)


def in_cell(sources: Mapping[str, Any], at: Location) -> Location:
    """The place in its cell for a place in a notebook, and any other place as it is.

    sources: the files by their paths.
    """
    if not at.path.endswith(".ipynb"):
        return at
    from fsdplint.source.notebooks import NotebookSource

    notebook = sources.get(at.path)
    if not isinstance(notebook, NotebookSource):
        return at
    number, line = notebook.cell_of(at.line)
    end_line = notebook.cell_of(at.end_line or at.line)[1]
    return Location(
        f"{at.path}:cell {number}", line, at.column, end_line, at.end_column or at.column
    )


def translate_locations(result: Result, output_format: str) -> Result:
    """The result with the locations in notebooks converted for the format."""
    if not any(path.endswith(".ipynb") for path in result.sources):
        return result
    from fsdplint.source.notebooks import NotebookSource

    notebooks = {
        path: one for path, one in result.sources.items() if isinstance(one, NotebookSource)
    }
    if not notebooks:
        return result
    translation = _Translation(result, notebooks, output_format in BY_CELL)
    return translation.result()


class _Translation:
    def __init__(
        self, result: Result, notebooks: Mapping[str, NotebookSource], by_cell: bool
    ) -> None:
        self.old = result
        self.notebooks = notebooks
        self.by_cell = by_cell
        self.ids: dict[int, int] = {}
        self.sources: dict[str, Source] = dict(result.sources)

    def result(self) -> Result:
        found = [self._finding(one) for one in self.old.findings]
        elsewhere = [self._finding(one) for one in self.old.elsewhere]
        if not self.by_cell:
            for path in self.notebooks:  # the file's text is not Python
                self.sources.pop(path)
        changes: dict[str, Any] = {
            "fixable": {self.ids.get(one, one) for one in self.old.fixable},
            "fixable_unsafe": {self.ids.get(one, one) for one in self.old.fixable_unsafe},
            "outside": {self.ids.get(k, k): v for k, v in self.old.outside.items()},
        }
        return replace(
            self.old, findings=found, elsewhere=elsewhere, sources=self.sources, **changes
        )

    def _finding(self, finding: Finding) -> Finding:
        related = tuple((FixedSite(self._place(s.location())), w) for s, w in finding.related)
        site = FixedSite(self._place(finding.site.location()))
        new = replace(
            finding,
            site=site,
            related=related,
            message=self._in_text(finding.message),
            help=self._in_text(finding.help),
            blocker=None if finding.blocker is None else self._in_text(finding.blocker),
            fix=self._fix(finding.fix),
        )
        self.ids[id(finding)] = id(new)
        return new

    def _place(self, at: Location) -> Location:
        notebook = self.notebooks.get(at.path)
        if notebook is None:
            return at
        if not self.by_cell:
            end_line, end_column = at.end_line or at.line, at.end_column or at.column
            return Location(
                at.path,
                *notebook.in_file(at.line, at.column),
                *notebook.in_file(end_line, end_column),
            )
        self._cell(at.path, notebook.cell_of(at.line)[0])
        return in_cell(self.notebooks, at)

    def _in_text(self, text: str) -> str:
        """A text whose references to lines of notebooks are converted, too."""
        for path in self.notebooks:

            def cell_name(match: re.Match[str], path: str = path) -> str:
                place = self._place(Location(path, int(match.group(1))))
                return f"{place.path}:{place.line}"

            text = re.sub(rf"(?<![\w/.]){re.escape(path)}:(\d+)\b", cell_name, text)
        return text

    def _cell(self, path: str, number: int) -> str:
        """The name of a cell; adds the cell's text to the sources."""
        from fsdplint.source.notebooks import CellSource

        name = f"{path}:cell {number}"
        if name not in self.sources:
            self.sources[name] = CellSource(name, self.notebooks[path].cell_text(number))
        return name

    def _fix(self, fix: Fix | None) -> Fix | None:
        """The fix with its edits in cells; without edits if the format does not name cells."""
        if fix is None or not any(edit.path in self.notebooks for edit in fix.edits):
            return fix
        notes = tuple(replace(x, places=tuple(map(self._place, x.places))) for x in fix.notes)
        from fsdplint.edits import apply

        found: list[Edit] = []
        if self.by_cell:
            try:
                complete = apply.complete(self.old.sources, fix)
            except (apply.BrokenFixError, KeyError):
                complete = fix.edits
            found = [new for edit in complete if (new := self._edit(edit)) is not None]
        return replace(
            fix, edits=tuple(found), imports=(), maybe_unused_imports=(), depends_on=(), notes=notes
        )

    def _edit(self, edit: Edit) -> Edit | None:
        notebook = self.notebooks.get(edit.path)
        if notebook is None:
            return edit
        line, column = notebook.position(edit.start)
        end_line, end_column = notebook.position(edit.end)
        number, row = notebook.cell_of(line)
        end_number, end_row = notebook.cell_of(end_line)
        if number != end_number:
            return None
        name = self._cell(edit.path, number)
        cell = self.sources[name]
        start = _offset(cell, row, column)
        return Edit(name, start, max(start, _offset(cell, end_row, end_column)), edit.text)


def _offset(source: Source, line: int, column: int) -> int:
    lines = source.text.split("\n")
    before = sum(len(one) + 1 for one in lines[: line - 1])
    return min(before + column - 1, len(source.text))
