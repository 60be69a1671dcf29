"""A proof as text for the terminal and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from fsdplint.rule import Finding
from fsdplint.shim.failures import failed, shown
from fsdplint.shim.launcher import Run
from fsdplint.shim.prove import Proof, all_checks
from fsdplint.shim.verdicts import Judged, Verdict

_SIGNS = {True: "holds", False: "DIFFERS", None: "unknown"}


def as_text(proof: Proof) -> str:
    """What a person reads: verdicts, what was compared, what went wrong."""
    return "\n".join(_parts(proof)) + "\n"


def _parts(proof: Proof) -> Iterator[str]:
    for judged in proof.judged:
        yield from _judged(judged)
    if proof.remaining:
        yield "Found and not fixed:"
        for finding in proof.remaining:
            at = finding.site.location()
            yield f"  {shown(at.path)}:{at.line}: {finding.rule.code} {finding.message}"
            if finding.blocker:
                yield f"    not migrated: {finding.blocker}"
    if proof.found:
        yield "Found in the run of the program after:"
        for finding in proof.found:
            at = finding.site.location()
            yield f"  {shown(at.path)}:{at.line}: {finding.rule.code} {finding.message}"
    checks = all_checks(proof)
    if checks:
        yield ""
        yield "Compared:"
        width = max(len(check.name) for check in checks)
        for check in checks:
            sign = _SIGNS[check.holds] if check.binding else "told"
            yield f"  {check.name:<{width}}  {sign:<8}{check.detail}"
        tolerances = {check.tolerance for check in checks if check.tolerance}
        for tolerance in sorted(tolerances):
            yield f"  tolerance: {tolerance}"
    for name, run in (("before", proof.before), ("after", proof.after)):
        if run is not None and not run.ok:
            yield ""
            yield from failed(f"The program {name}", run)
    yield ""
    yield _summary(proof)


def _judged(judged: Judged) -> Iterator[str]:
    at = judged.at
    where = f"{shown(at.path)}:{at.line}: {judged.code} " if at is not None else ""
    yield f"{judged.verdict.value.upper():<15}{where}{judged.title}"
    for reason in judged.reasons:
        yield f"{'':<15}{reason}"


def _summary(proof: Proof) -> str:
    if not proof.judged:
        if proof.remaining:
            return "Nothing to prove: none of the findings has a fix."
        return "Nothing to prove: nothing was found."
    counts = {verdict: 0 for verdict in Verdict}
    for judged in proof.judged:
        counts[judged.verdict] += 1
    text = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    runs = [run for run in (proof.before, proof.after) if run is not None]
    times = " and ".join(f"{run.seconds:.1f} s" for run in runs)
    ranks = runs[0].launch.ranks if runs else 0
    return f"{text} ({ranks} ranks, {times})."


def as_json(proof: Proof) -> dict[str, Any]:
    """Everything, for other programs to read."""
    return {
        "script": str(proof.script),
        "proven": proof.holds,
        "deterministic": proof.deterministic,
        "fixes": [
            {
                "verdict": judged.verdict.value,
                "code": judged.code,
                "title": judged.title,
                "message": judged.message,
                "filename": judged.at.path if judged.at else None,
                "line": judged.at.line if judged.at else None,
                "reasons": judged.reasons,
            }
            for judged in proof.judged
        ],
        "remaining": [_finding(finding) for finding in proof.remaining],
        "found_after": [_finding(finding) for finding in proof.found],
        "checks": [dataclasses.asdict(check) for check in all_checks(proof)],
        "diff": proof.diff,
        "before": _run(proof.before),
        "after": _run(proof.after),
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
