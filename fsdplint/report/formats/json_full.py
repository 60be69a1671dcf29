"""One object with a version: a summary, the findings, the problems and the coverage."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fsdplint.diagnostics.finding import Severity
from fsdplint.report import schema
from fsdplint.report.coverage import as_data, counts
from fsdplint.report.formats.json import findings, problems
from fsdplint.report.result import Result, summary
from fsdplint.version import __version__

FOR_PEOPLE = False
HAS_STATISTICS = True


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    data: schema.Check = {
        "schema_version": 1,
        "version": __version__,
        "summary": summary_data(result),
        "findings": list(findings(result)),
        "problems": list(problems(result)),
        "coverage": as_data(result.coverage),
    }
    yield json.dumps(data, indent=2)


def summary_data(result: Result) -> schema.Summary:
    """The result in numbers."""

    def count(severity: Severity) -> int:
        return sum(one.rule.severity is severity for one in result.findings)

    ids = {id(one) for one in result.findings}
    return {
        "text": " ".join(summary(result)),
        "files": result.files,
        "errors": count(Severity.ERROR),
        "warnings": count(Severity.WARNING),
        "notes": count(Severity.INFO),
        "fixed": result.fixed,
        "fixable": len(ids & result.fixable),
        "fixable_unsafe": len(ids & (result.fixable_unsafe - result.fixable)),
        "problems": len(result.problems),
        "coverage": counts(result.coverage),
    }
