"""The report of a migration as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fsdplint.migration.report.model import Report, Section, summary
from fsdplint.report.notes import note_data, place_data
from fsdplint.report.urls import rule_url


def write(report: Report) -> Iterator[str]:
    """The lines of the report."""
    yield json.dumps(as_data(report), indent=2)


def as_data(report: Report) -> dict[str, Any]:
    return {
        "summary": " ".join(summary(report)),
        "wrote": report.wrote,
        "annotated": report.annotated_files,
        "coverage": {
            "sites": len(report.coverage),
            "covered": sum(site.covered for site in report.coverage),
        },
        "problems": [
            {"filename": one.path, "row": one.line, "message": one.message, "help": one.hint}
            for one in report.problems
        ],
        "programs": [_section(section) for section in report.sections],
    }


def _section(section: Section) -> dict[str, Any]:
    return {
        "name": section.title,
        "files": section.files,
        "verdict": _verdict(section),
        "changes": [
            {
                **place_data(one.place),
                "new_row": one.new_line,
                "titles": one.titles,
                "before": one.before,
                "after": one.after,
                "rules": [
                    {"code": x.code, "name": x.name, "reason": x.text, "url": rule_url(x.name)}
                    for x in one.reasons
                ],
            }
            for one in section.changes
        ],
        "blockers": [
            {
                **place_data(one.place),
                "code": one.code,
                "blocker": one.blocker,
                "lines": [line for _, line in one.lines],
                "reason": one.reason,
                "advice": one.advice,
            }
            for one in section.obstacles
        ],
        "waiting": [place_data(one) for one in section.waiting],
        "notes": note_data(section.remarks),
        "outside": section.outside,
        "prove": section.prove,
        "prove_note": section.prove_note,
    }


def _verdict(section: Section) -> str:
    if section.is_blocked:
        return "blocked"
    return "migrated" if section.is_written else "migratable"
