"""The proof: a program is run before and after its fixes, and each fix gets a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.shim.checks import Check, Comparison
from fsdplint.shim.compare import compare
from fsdplint.shim.launcher import Run
from fsdplint.shim.pairs import (
    Options,
    Pair,
    Progress,
    ProveError,
    against,
    fixed,
    fixes_of,
    reached_lines,
    script_of,
)
from fsdplint.shim.verdicts import Evidence, Judged, Verdict, place_of
from fsdplint.shim.workplace import workplace
from fsdplint.trace import Trace

if TYPE_CHECKING:
    from fsdplint.rule import Finding


@dataclass
class Proof:
    """Everything that was found out.

    Attributes:
        root: the folder of the project, which the names in `diff` are relative to.
        remaining: what a check of the fixed program finds.
        found: what else the rules find in the run of the fixed program.
    """

    script: Path
    judged: list[Judged]
    before: Run | None = None
    after: Run | None = None
    comparison: Comparison | None = None
    remaining: list[Finding] = field(default_factory=list)
    deterministic: bool | None = None
    diff: str = ""
    found: list[Finding] = field(default_factory=list)
    root: Path = Path()

    @property
    def holds(self) -> bool:
        """Whether all is proven, and nothing was found that has no fix."""
        if not self.judged:
            return not self.remaining
        return all(judged.verdict is Verdict.PROVEN for judged in self.judged)


def prove(options: Options, say: Progress = lambda text: None) -> Proof:
    """Fix a copy of the program, run both, and judge every fix.

    Raises:
        ProveError: the program cannot be read, copied, fixed or started.
        WorkplaceError: there is no folder for the copies.
    """
    script = script_of(options.script)
    if options.against is not None:
        return _prove_pair(options, script, script_of(options.against), say)
    fixes = fixes_of(script, options.unsafe)
    remaining = list(fixes.result.findings)
    if not fixes.applied:
        return Proof(script, [], remaining=remaining)
    with workplace("prove", options.keep) as work:
        pair = fixed(options, work, script, fixes)
        lines: dict[str, list[int]] = {}
        for finding in fixes.applied:
            path, line = place_of(finding)
            lines.setdefault(path, []).append(line)
        return _judge_fixes(pair, fixes.applied, remaining, lines, say)


# Comparing ----------------------------------------------------------------------------------------


def _failure(run: Run, name: str) -> str:
    """Why a run did not end well, in one line a rank."""
    parts = [run.problem] if run.problem else []
    for end in run.ends:
        if end.status == "ok":
            continue
        text = f"rank {end.rank} {end.status}"
        if end.where:
            text += f" at {end.where}"
        if end.error:
            text += f": {end.error.strip().splitlines()[-1][:300]}"
        elif end.last:
            text += f" (last: {end.last})"
        parts.append(text)
    missing = run.launch.ranks - len(run.ends)
    if missing > 0:
        parts.append(f"{missing} ranks were not started")
    return f"the program {name}: " + "; ".join(parts)


def _compared(
    pair: Pair, before: Run, after: Run, same_units: bool, say: Progress
) -> tuple[Trace, Trace, Comparison | None, bool | None]:
    """The traces of both, what the comparison found, and whether the program is deterministic."""
    traces = pair.trace(before, "before"), pair.trace(after, "after")
    if not before.ok or not after.ok:
        return (*traces, None, None)
    ours, theirs = pair.side(before, traces[0]), pair.side(after, traces[1])
    comparison = compare(ours, theirs, same_units=same_units)
    if comparison.holds:
        return (*traces, comparison, None)
    # Before anything is refuted: does the program agree with itself?
    say("the runs differ: running the program before once more")
    again = pair.run("again")
    if not again.ok:
        return (*traces, comparison, None)
    repeated = compare(ours, pair.side(again, pair.trace(again, "again")), same_units=True)
    return (*traces, comparison, repeated.holds)


def _prove_pair(options: Options, script: Path, other: Path, say: Progress) -> Proof:
    with workplace("prove", options.keep) as work:
        pair = against(options, work, script, other)
        say(f"running {script.name} on {options.ranks} ranks")
        before = pair.run("before")
        say(f"running {other.name} on {options.ranks} ranks")
        after = pair.run("after")
        _, trace, comparison, deterministic = _compared(pair, before, after, True, say)
        found = _found(other, trace, {}, [])
    verdict, reasons = _overall(before, after, comparison, deterministic)
    judged = Judged(f"{script.name} against {other.name}", verdict, reasons)
    return Proof(script, [judged], before, after, comparison, [], deterministic, found=found)


def _overall(
    before: Run, after: Run, comparison: Comparison | None, deterministic: bool | None
) -> tuple[Verdict, list[str]]:
    if not after.ok:
        return Verdict.REFUTED, [_failure(after, "after")]
    if not before.ok:
        return Verdict.NOT_COMPARABLE, [
            _failure(before, "before"),
            "the program after ran to its end; there is nothing to compare it with",
        ]
    assert comparison is not None
    if comparison.holds:
        return Verdict.PROVEN, []
    reasons = [f"{check.name}: {check.detail}" for check in comparison.failed]
    if deterministic is False:
        return Verdict.NOT_COMPARABLE, [
            "the program before does not agree with itself in a second run",
            *reasons,
        ]
    return Verdict.REFUTED, reasons


# Judging each fix ---------------------------------------------------------------------------------


def _judge_fixes(
    pair: Pair,
    applied: Sequence[Finding],
    remaining: list[Finding],
    lines: Mapping[str, Sequence[int]],
    say: Progress,
) -> Proof:
    # Only a migration has to shard the same modules; other rules may be about what is sharded.
    same_units = all(finding.rule.code.startswith("FSDP2") for finding in applied)
    say(f"running {pair.script.name} as it is on {pair.options.ranks} ranks")
    before = pair.run("before", lines)
    say(f"running it with {len(applied)} fixes")
    after = pair.run("after")
    before_trace, after_trace, comparison, deterministic = _compared(
        pair, before, after, same_units, say
    )
    verdict, reasons = _overall(before, after, comparison, deterministic)
    seen = reached_lines(before, pair.root, pair.work / "before" / "project")
    proof = Proof(pair.script, [], before, after, comparison, remaining, deterministic)
    proof.diff, proof.root = pair.diff(), pair.root
    proof.found = _found(pair.script, after_trace, pair.contents, remaining)
    evidence = Evidence.of(
        applied, (verdict, reasons), seen, (before_trace, after_trace), pair.texts, comparison
    )
    proof.judged = [evidence.judge(finding) for finding in applied]
    return proof


def _found(
    script: Path, trace: Trace, contents: Mapping[Path, bytes], known: Sequence[Finding]
) -> list[Finding]:
    """What the rules find in the run of the program after, beyond what a check of it finds."""
    from fsdplint.editing.journal import Interrupted
    from fsdplint.run import Run as Checked
    from fsdplint.settings import SettingsError

    try:
        checked = Checked([script])
    except (SettingsError, Interrupted) as error:
        raise ProveError(str(error)) from error
    result = checked.check_recorded(trace, {str(path): data for path, data in contents.items()})
    seen = {(finding.rule, place_of(finding)) for finding in known}
    return [one for one in result.findings if (one.rule, place_of(one)) not in seen]


def all_checks(proof: Proof) -> list[Check]:
    return proof.comparison.checks if proof.comparison is not None else []
