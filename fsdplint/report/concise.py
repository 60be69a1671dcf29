"""One line for each finding."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.report.result import Result, conditions, problem_line, summary


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    for problem in result.problems:
        yield problem_line(problem)
    for finding in result.findings:
        at = finding.site.location()
        mark = " [*]" if result.applicable(finding) else ""
        condition = f" [only when {conditions(finding)}]" if finding.configuration else ""
        place = f"{at.path}:{at.line}:{at.column}"
        yield f"{place}: {finding.rule.code}{mark} {finding.message}{condition}"
    yield from summary(result)
