"""A proof as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from fsdplint.diagnostics.finding import Finding
from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.proof.prove import Proof
from fsdplint.runtime.proof.runs import ORACLE


def as_json(proof: Proof) -> dict[str, Any]:
    """The complete proof, for other programs."""
    return {
        "script": str(proof.script),
        "proven": proof.holds,
        "deterministic": proof.trial.deterministic if proof.trial is not None else None,
        "fixes": [
            {
                "verdict": judged.verdict.value,
                "code": judged.code,
                "title": judged.title,
                "message": judged.message,
                "filename": judged.at.path if judged.at else None,
                "line": judged.at.line if judged.at else None,
                "reasons": judged.reasons,
                "before": judged.before,
                "after": judged.after,
                "checks": [check.name for check in judged.checks],
            }
            for judged in proof.verdicts
        ],
        "outside": proof.outside,
        "remaining": [_finding(finding) for finding in proof.remaining],
        "found_after": [_finding(finding) for finding in proof.found],
        "checks": [dataclasses.asdict(check) for check in proof.checks],
        "diff": proof.diff,
        "before": _run(proof.runs.get("before")),
        "after": _run(proof.runs.get("after")),
        "without_sharding": _run(proof.runs.get(ORACLE)),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    at = finding.site.location()
    return {
        "code": finding.rule.code,
        "message": finding.message,
        "blocker": finding.blocker,
        "filename": at.path,
        "line": at.line,
    }


def _run(run: Run | None) -> dict[str, Any] | None:
    if run is None:
        return None
    return {
        "status": run.status,
        "problem": run.problem,
        "seconds": run.seconds,
        "code": run.code,
        "ranks": [dataclasses.asdict(end) for end in run.ends],
        "steps": [record.measures for record in run.records],
        "notes": [note for record in run.records for note in record.notes],
        "output": {str(rank): text for rank, text in run.output.items()},
    }
