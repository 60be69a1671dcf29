"""One line for each finding."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.report.records import records
from fsdplint.report.result import Result, problem_line, summary
from fsdplint.report.styling import code, path

FOR_PEOPLE = True
HAS_STATISTICS = True


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    for problem in result.problems:
        yield problem_line(problem)
    for one in records(result):
        if one.finding is not None:
            at = one.at
            mark = " [*]" if result.applicable(one.finding) else ""
            place = path(result, f"{at.path}:{at.line}:{at.column}")
            yield f"{place}: {code(result, one)}{mark} {one.line}"
    yield from summary(result)
