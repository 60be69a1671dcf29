"""A list of objects, one for each finding and for each file that could not be checked."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fsdplint.diagnostics.finding import Edit, Finding
from fsdplint.report import schema
from fsdplint.report.cells import split
from fsdplint.report.notes import note_data, remarks
from fsdplint.report.reasons import why_of
from fsdplint.report.records import Edits
from fsdplint.report.result import Result
from fsdplint.report.urls import page_of, rule_url
from fsdplint.source.files import Problem
from fsdplint.trace import Location

FOR_PEOPLE = False
HAS_STATISTICS = True


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    yield json.dumps(list(objects(result)), indent=2)


def objects(result: Result) -> Iterator[schema.Finding]:
    """One object for each problem and each finding."""
    yield from problems(result)
    yield from findings(result)


def problems(result: Result) -> Iterator[schema.Finding]:
    """One object for each file that could not be checked."""
    yield from (_problem(problem) for problem in result.problems)


def findings(result: Result) -> Iterator[schema.Finding]:
    """One object for each finding."""
    edits = Edits(result)
    yield from (_finding(result, finding, edits) for finding in result.findings)


def _problem(problem: Problem) -> schema.Finding:
    place: schema.Position = {"row": problem.line or 1, "column": 1}
    return {
        "code": problem.code,
        "name": problem.name,
        "severity": "error",
        "message": problem.message,
        "why": "",
        "help": problem.hint,
        **_file(problem.path),
        "location": place,
        "end_location": place,
        "configuration": [],
        "related": [],
        "group": None,
        "blocker": None,
        "blocker_codes": [],
        "fix": None,
        "url": rule_url(problem.name),
    }


def _finding(result: Result, finding: Finding, edits: Edits) -> schema.Finding:
    at = finding.site.location()
    return {
        "code": finding.rule.code,
        "name": finding.rule.name,
        "severity": finding.rule.severity.value,
        "message": finding.message,
        "why": why_of(finding),
        "help": finding.help,
        **_file(at.path),
        "location": _start(at),
        "end_location": _end(at),
        "configuration": [
            {"condition": guard.text, "holds": guard.holds} for guard in finding.configuration
        ],
        "related": [
            {"message": word, **_file(where.path), "location": _start(where)}
            for where, word in ((site.location(), word) for site, word in finding.related)
        ],
        "group": finding.group or (finding.fix.group if finding.fix else None),
        "blocker": finding.blocker,
        "blocker_codes": list(finding.blocker_codes),
        "fix": _fix(result, finding, edits),
        "url": page_of(finding.rule),
    }


def _fix(result: Result, finding: Finding, edits: Edits) -> schema.Fix | None:
    fix = finding.fix
    if fix is None:
        return None
    written = [one for edit in edits.of(finding) if (one := _edit(result, edit))]
    return {
        "safety": fix.safety.value,
        "title": fix.title,
        "group": fix.group,
        "edits": written,
        "notes": note_data(remarks(fix)),
    }


def _edit(result: Result, edit: Edit) -> schema.Edit | None:
    source = result.sources.get(edit.path)
    if source is None:
        return None
    row, column = source.position(edit.start)
    end_row, end_column = source.position(edit.end)
    return {
        **_file(edit.path),
        "content": edit.text,
        "location": {"row": row, "column": column},
        "end_location": {"row": end_row, "column": end_column},
    }


def _file(path: str) -> schema.File:
    """The file, and for notebooks the cell that lines refer to."""
    file, cell = split(path)
    return {"filename": file} if cell is None else {"filename": file, "cell": cell}


def _start(at: Location) -> schema.Position:
    return {"row": at.line, "column": at.column}


def _end(at: Location) -> schema.Position:
    return {"row": at.end_line or at.line, "column": at.end_column or at.column}
