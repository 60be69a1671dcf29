"""A list of objects, one for each finding and for each file that could not be checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fsdplint.files import Problem
from fsdplint.report.result import Result
from fsdplint.report.urls import rule_url
from fsdplint.rule import Edit, Finding, Severity
from fsdplint.trace import Location


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    objects = [_problem(problem) for problem in result.problems]
    objects += [_finding(result, finding) for finding in result.findings]
    yield json.dumps(objects, indent=2)


def _problem(problem: Problem) -> dict[str, Any]:
    place = {"row": problem.line or 1, "column": 1}
    return {
        "code": Problem.CODE,
        "name": Problem.NAME,
        "severity": Severity.ERROR.value,
        "message": problem.message,
        "help": problem.hint,
        "filename": problem.path,
        "location": place,
        "end_location": place,
        "configuration": [],
        "related": [],
        "group": None,
        "blocker": None,
        "fix": None,
        "url": rule_url(Problem.NAME),
    }


def _finding(result: Result, finding: Finding) -> dict[str, Any]:
    at = finding.site.location()
    return {
        "code": finding.rule.code,
        "name": finding.rule.name,
        "severity": finding.rule.severity.value,
        "message": finding.message,
        "help": finding.help,
        "filename": at.path,
        "location": _start(at),
        "end_location": _end(at),
        "configuration": [
            {"condition": guard.text, "holds": guard.holds} for guard in finding.configuration
        ],
        "related": [
            {"message": word, "filename": where.path, "location": _start(where)}
            for where, word in ((site.location(), word) for site, word in finding.related)
        ],
        "group": finding.group or (finding.fix.group if finding.fix else None),
        "blocker": finding.blocker,
        "fix": _fix(result, finding),
        "url": rule_url(finding.rule.name),
    }


def _fix(result: Result, finding: Finding) -> dict[str, Any] | None:
    fix = finding.fix
    if fix is None:
        return None
    edits = [one for edit in _all_edits(result, finding) if (one := _edit(result, edit))]
    return {"safety": fix.safety.value, "title": fix.title, "group": fix.group, "edits": edits}


def _all_edits(result: Result, finding: Finding) -> tuple[Edit, ...]:
    """The fix's edits with those of the imports that it needs or leaves unused."""
    from fsdplint.editing import edits

    assert finding.fix is not None
    try:
        return edits.complete(result.sources, finding.fix)
    except (edits.BrokenFixError, KeyError):
        return finding.fix.edits


def _edit(result: Result, edit: Edit) -> dict[str, Any] | None:
    source = result.sources.get(edit.path)
    if source is None:
        return None
    row, column = source.position(edit.start)
    end_row, end_column = source.position(edit.end)
    return {
        "filename": edit.path,
        "content": edit.text,
        "location": {"row": row, "column": column},
        "end_location": {"row": end_row, "column": end_column},
    }


def _start(at: Location) -> dict[str, int]:
    return {"row": at.line, "column": at.column}


def _end(at: Location) -> dict[str, int]:
    return {"row": at.end_line or at.line, "column": at.end_column or at.column}
