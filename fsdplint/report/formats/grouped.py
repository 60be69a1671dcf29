"""One line for each finding, under the name of its file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from fsdplint.report.records import Record, records
from fsdplint.report.result import Result, summary
from fsdplint.report.styling import code, path

FOR_PEOPLE = True
HAS_STATISTICS = False


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    for name, group in groupby(sorted(records(result), key=_path), key=_path):
        together = list(group)
        width = max(len(_place(one)) for one in together)
        yield f"{path(result, name)}:"
        for one in together:
            mark = " [*]" if one.finding and result.applicable(one.finding) else ""
            yield f"  {_place(one):<{width}} {code(result, one)}{mark} {one.line}"
        yield ""
    yield from summary(result)


def _path(one: Record) -> str:
    return one.at.path


def _place(one: Record) -> str:
    return f"{one.at.line}:{one.at.column}"
