"""A proof as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding
from fsdplint.runtime.launch.endings import RankEnd
from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.proof.reports.units import unit_data
from fsdplint.runtime.proof.runs import ORACLE
from fsdplint.version import __version__

if TYPE_CHECKING:
    from fsdplint.runtime.proof.checks import Check
    from fsdplint.runtime.proof.prove import Proof
    from fsdplint.runtime.proof.reports import schema
    from fsdplint.runtime.proof.verdicts import FixVerdict


def as_json(proof: Proof) -> schema.Proof:
    """The complete proof, for other programs."""
    return {
        "schema_version": 1,
        "version": __version__,
        "script": str(proof.script),
        "proven": proof.holds,
        "deterministic": proof.trial.deterministic if proof.trial is not None else None,
        "fixes": [_fix(judged) for judged in proof.verdicts],
        "outside": proof.outside,
        "remaining": [_finding(finding) for finding in proof.remaining],
        "found_after": [_finding(finding) for finding in proof.found],
        "checks": [_check(check) for check in proof.checks],
        "units": unit_data(proof.runs),
        "diff": proof.diff,
        "before": _run(proof.runs.get("before")),
        "after": _run(proof.runs.get("after")),
        "without_sharding": _run(proof.runs.get(ORACLE)),
    }


def _fix(judged: FixVerdict) -> schema.Fix:
    return {
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


def _check(check: Check) -> schema.Check:
    return {
        "name": check.name,
        "holds": check.holds,
        "detail": check.detail,
        "tolerance": check.tolerance,
        "binding": check.binding,
        "layout": check.layout,
    }


def _finding(finding: Finding) -> schema.Finding:
    at = finding.site.location()
    return {
        "code": finding.rule.code,
        "message": finding.message,
        "blocker": finding.blocker,
        "filename": at.path,
        "line": at.line,
    }


def _run(run: Run | None) -> schema.Run | None:
    if run is None:
        return None
    return {
        "status": run.status,
        "problem": run.problem,
        "seconds": run.seconds,
        "code": run.code,
        "ranks": [end_data(end) for end in run.ends],
        "steps": [record.measures for record in run.records],
        "notes": [note for record in run.records for note in record.notes],
        "output": {str(rank): text for rank, text in run.output.items()},
    }


def end_data(end: RankEnd) -> schema.RankEnd:
    """How the program ended on one rank."""
    return {
        "rank": end.rank,
        "status": end.status,
        "where": end.where,
        "last": end.last,
        "error": end.error,
        "collective": end.collective,
        "said": end.cause,
    }
