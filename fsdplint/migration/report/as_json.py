"""The report of a migration as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Literal

from fsdplint.migration.report import schema
from fsdplint.migration.report.model import (
    Change,
    Obstacle,
    OpenPlace,
    Report,
    Section,
    summary,
)
from fsdplint.migration.report.postconditions import postcondition
from fsdplint.migration.report.proof_commands import validate_command
from fsdplint.report.cells import split
from fsdplint.report.coverage import counts
from fsdplint.report.notes import note_data, place_data
from fsdplint.report.urls import rule_url
from fsdplint.version import __version__


def write(report: Report) -> Iterator[str]:
    """The lines of the report."""
    yield json.dumps(as_data(report), indent=2)


def as_data(report: Report) -> schema.Migration:
    return {
        "schema_version": 1,
        "version": __version__,
        "summary": " ".join(summary(report)),
        "wrote": report.wrote,
        "annotated": report.annotated_files,
        "coverage": counts(report.coverage),
        "problems": [
            {"filename": one.path, "row": one.line, "message": one.message, "help": one.hint}
            for one in report.problems
        ],
        "programs": [_section(section) for section in report.sections],
        "open": [_open_place(one) for one in report.open],
    }


def _section(section: Section) -> schema.Program:
    return {
        "name": section.title,
        "files": section.files,
        "verdict": _verdict(section),
        "changes": [_change(one) for one in section.changes],
        "blockers": [_blocker(one, section) for one in section.obstacles],
        "open": [_open_place(one) for one in section.open],
        "sites": {"rewritten": section.sites[0], "all": section.sites[1]},
        "waiting": [place_data(one) for one in section.waiting],
        "notes": note_data(section.remarks),
        "outside": section.outside,
        "prove": section.prove,
        "prove_note": section.prove_note,
        "validate": validate_command(section.title),
    }


def _change(change: Change) -> schema.Change:
    return {
        **place_data(change.place),
        "new_row": change.new_line,
        "titles": change.titles,
        "before": change.before,
        "after": change.after,
        "rules": [
            {"code": one.code, "name": one.name, "reason": one.text, "url": rule_url(one.name)}
            for one in change.reasons
        ],
    }


def _blocker(obstacle: Obstacle, section: Section) -> schema.Blocker:
    return {
        **place_data(obstacle.place),
        "end_row": obstacle.end_line or obstacle.place.line,
        "code": obstacle.code,
        "blocker": obstacle.blocker,
        "lines": [line for _, line in obstacle.lines],
        "reason": obstacle.reason,
        "advice": obstacle.advice,
        "postcondition": postcondition(obstacle.blocker),
        "checks": [
            shlex.join(["fsdplint", "migrate", *section.files]),
            validate_command(section.program_of(split(obstacle.place.path)[0])),
        ],
    }


def _open_place(one: OpenPlace) -> schema.OpenPlace:
    return {
        **place_data(one.place),
        "blocker": one.blocker,
        "decision": one.decision,
        "reason": one.reason,
        "lines": list(one.old),
        "postcondition": one.postcondition,
        "checks": list(one.checks),
    }


def _verdict(
    section: Section,
) -> Literal["blocked", "migratable", "migrated", "partly migratable", "partly migrated"]:
    if section.is_blocked:
        return "blocked"
    if section.is_partial:
        return "partly migrated" if section.is_written else "partly migratable"
    return "migrated" if section.is_written else "migratable"
