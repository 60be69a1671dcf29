"""A proof as text for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from fsdplint.report.result import plural
from fsdplint.runtime.launch.failures import failure_lines, relative_path
from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.proof.checks import Check
from fsdplint.runtime.proof.prove import Proof
from fsdplint.runtime.proof.runs import ORACLE
from fsdplint.runtime.proof.verdicts import FixVerdict, Verdict

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding

_OUTSIDE = "Written outside of the copies of the project, and not compared"
_SIGNS = {True: "holds", False: "DIFFERS", None: "unknown"}


def sign(check: Check) -> str:
    """The result of a check in one word."""
    return _SIGNS[check.holds] if check.binding else "info"


def as_text(proof: Proof) -> str:
    """The verdicts, the checks, and the failures of runs."""
    return "\n".join(_parts(proof)) + "\n"


def common_reasons(proof: Proof) -> list[str]:
    """The reasons of the runs as a whole that several verdicts share."""
    if proof.trial is None:
        return []
    _, reasons = proof.trial.verdict()
    several = [sum(reason in one.reasons for one in proof.verdicts) > 1 for reason in reasons]
    return [reason for reason, many in zip(reasons, several, strict=True) if many]


def _parts(proof: Proof) -> Iterator[str]:
    common = common_reasons(proof)
    if common and proof.trial is not None:
        yield f"The runs as a whole: {proof.trial.verdict()[0].value}"
        yield from (f"  {reason}" for reason in common)
        yield ""
    for judged in proof.verdicts:
        yield from _verdict_lines(judged, common)
    for title, findings in findings_of(proof).items():
        yield f"{title}:"
        yield from ("  " + line.replace("\n", "\n    ") for line in findings)
    checks = proof.checks
    if checks:
        yield ""
        yield heading(proof) + ":"
        width = max(len(check.name) for check in checks)
        for check in checks:
            yield f"  {check.name:<{width}}  {sign(check):<8}{check.detail}"
        tolerances = {check.tolerance for check in checks if check.tolerance}
        for tolerance in sorted(tolerances):
            yield f"  tolerance: {tolerance}"
    for name, run in proof.runs.items():
        if not run.ok:
            yield ""
            yield from failure_lines(f"The program {name}", run)
    yield ""
    yield summary(proof)


def findings_of(proof: Proof) -> dict[str, list[str]]:
    """The remaining findings, and the files written outside of the copies, by title."""
    both = {
        "Found and not fixed": proof.remaining,
        "Found in the run of the program after": proof.found,
    }
    lists = {title: [_finding_line(one) for one in found] for title, found in both.items() if found}
    if proof.outside:
        lists[_OUTSIDE] = [relative_path(path) for path in proof.outside]
    return lists


def _finding_line(finding: Finding) -> str:
    at = finding.site.location()
    text = f"{relative_path(at.path)}:{at.line}: {finding.rule.code} {finding.message}"
    return f"{text}\nnot migrated: {finding.blocker}" if finding.blocker else text


def _verdict_lines(judged: FixVerdict, common: Collection[str]) -> Iterator[str]:
    at = judged.at
    where = f"{relative_path(at.path)}:{at.line}: {judged.code} " if at is not None else ""
    yield f"{judged.verdict.value.upper():<15}{where}{judged.title}"
    for reason in judged.reasons:
        if reason not in common:
            yield f"{'':<15}{reason}"
    for name, happened in (("before", judged.before), ("after", judged.after)):
        if happened:
            yield f"{'':<15}{name}: {happened}"


def heading(proof: Proof) -> str:
    """The heading of the checks."""
    if proof.trial is not None and proof.trial.before_failure:
        return f"Compared (before is the program {ORACLE})"
    return "Compared"


def summary(proof: Proof) -> str:
    """The number of each verdict, and the ranks and times of the runs, in one line."""
    if not proof.verdicts:
        if proof.remaining:
            return "Nothing to prove: no finding has a fix; `fsdplint migrate` gives the reasons."
        return "Nothing to prove: there are no findings."
    counts = {verdict: 0 for verdict in Verdict}
    for judged in proof.verdicts:
        counts[judged.verdict] += 1
    text = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    if not proof.runs:
        return f"{text}."
    times = ", ".join(f"{name} {run.seconds:.1f} s" for name, run in proof.runs.items())
    return f"{text} ({ranks_of(proof.runs['before'])}; {times})."


def ranks_of(run: Run) -> str:
    """The number of ranks, and their devices if these are recorded."""
    emulated = next((one.head["emulated"] for one in run.records if "emulated" in one.head), None)
    where = {None: "", True: " on the CPU, with gloo", False: " on their own devices"}[emulated]
    return plural(run.launch.world, "rank") + where
