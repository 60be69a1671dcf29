"""The format of pylint that many tools read: `path:line: [code] message`."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.report.records import records
from fsdplint.report.result import Result, on_one_line

FOR_PEOPLE = False
HAS_STATISTICS = False


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    for one in records(result):
        yield f"{on_one_line(one.at.path)}:{one.at.line}: [{one.code}] {one.line}"
