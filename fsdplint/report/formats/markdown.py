"""A short summary for a pull request: a table of the findings, the worst first."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Severity
from fsdplint.report.records import Record, records
from fsdplint.report.result import Result, summary

FOR_PEOPLE = True
HAS_STATISTICS = False

HEAD = "## fsdplint"
MOST = 25  # findings that are listed
LONGEST = 300  # characters of a message
_ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    yield HEAD
    yield ""
    found = sorted(records(result), key=lambda one: _ORDER.index(one.severity))
    if found:
        yield "| | Place | Finding |"
        yield "| --- | --- | --- |"
        yield from map(_row, found[:MOST])
        if len(found) > MOST:
            yield f"| | | {len(found) - MOST} more |"
        yield ""
    for line in summary(result):
        yield f"{_escape(line)}  "  # a line of its own


def _row(one: Record) -> str:
    code = f"[{one.code}]({one.url})" if one.url else one.code
    place = _escape(f"{one.at.path}:{one.at.line}").replace("`", "'")
    message = one.line if len(one.line) <= LONGEST else f"{one.line[:LONGEST]}..."
    return f"| {one.severity.value} | `{place}` | {code} {_escape(message)} |"


def _escape(text: str) -> str:
    """A text on one line that breaks neither a table nor the page."""
    text = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    return text.replace("<", "&lt;").replace("[*]", "\\[\\*\\]")
