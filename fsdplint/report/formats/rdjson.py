"""Reviewdog's diagnostic format: https://github.com/reviewdog/reviewdog/tree/master/proto/rdf

Its columns count bytes of UTF-8. A suggestion has no path and is applied by itself. Therefore all
edits of a fix are merged into one, and a fix that changes other files gives no suggestion.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fsdplint.diagnostics.finding import Edit, Severity
from fsdplint.report.records import Edits, Record, records
from fsdplint.report.result import Result
from fsdplint.report.urls import BASE
from fsdplint.trace import Location

if TYPE_CHECKING:
    from fsdplint.source.source import Source

FOR_PEOPLE = False
HAS_STATISTICS = False

_LEVELS = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.INFO: "INFO"}


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    edits = Edits(result)
    suggested: set[tuple[Edit, ...]] = set()  # the findings of a migration share their fix
    diagnostics = []
    for one in records(result):
        diagnostic = _diagnostic(result, one)
        wanted = edits.applicable(one.finding) if one.finding else ()
        if wanted and wanted not in suggested and {edit.path for edit in wanted} == {one.at.path}:
            suggested.add(wanted)
            diagnostic["suggestions"] = [_suggestion(result.sources[one.at.path], wanted)]
        diagnostics.append(diagnostic)
    report = {"source": {"name": "fsdplint", "url": BASE}, "diagnostics": diagnostics}
    yield json.dumps(report, indent=2)


def _diagnostic(result: Result, one: Record) -> dict[str, Any]:
    text = one.message + (f"\n{one.help}" if one.help else "")
    diagnostic: dict[str, Any] = {
        "message": text,
        "location": _location(result, one.at),
        "severity": _LEVELS[one.severity],
        "code": {"value": one.code} | ({"url": one.url} if one.url else {}),
    }
    related = one.finding.related if one.finding else ()
    if related:
        diagnostic["related_locations"] = [
            {"message": word, "location": _location(result, site.location())}
            for site, word in related
        ]
    return diagnostic


def _location(result: Result, at: Location) -> dict[str, Any]:
    source = result.sources.get(at.path)
    start = _position(source, at.line, at.column)
    end = _position(source, at.end_line or at.line, at.end_column or at.column)
    return {"path": at.path, "range": {"start": start, "end": end}}


def _position(source: Source | None, line: int, column: int) -> dict[str, int]:
    if source is not None:
        before = source.line(line)[: column - 1]
        column += len(before.encode("utf-8", "surrogatepass")) - len(before)
    return {"line": line, "column": column}


def _suggestion(source: Source, edits: Sequence[Edit]) -> dict[str, Any]:
    """One replacement with the effect of all edits."""
    ordered = sorted(edits)
    start, end = ordered[0].start, max(edit.end for edit in ordered)
    text, position = "", start
    for edit in ordered:
        text += source.text[position : edit.start] + edit.text
        position = edit.end
    return {
        "range": {
            "start": _position(source, *source.position(start)),
            "end": _position(source, *source.position(end)),
        },
        "text": text,
    }
