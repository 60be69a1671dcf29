"""Proves fixes: runs a program before and after them, and gives each fix a verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.launch.progress import Progress
from fsdplint.runtime.launch.workplace import workplace
from fsdplint.runtime.proof.checks import Check
from fsdplint.runtime.proof.program_pair import (
    Options,
    Pair,
    ProveError,
    fixes_of,
    pair_of_programs,
    pair_with_fixes,
    reached_lines,
    script_of,
)
from fsdplint.runtime.proof.runs import ORACLE, Trial, run_and_compare
from fsdplint.runtime.proof.verdicts import Evidence, FixVerdict, Verdict, place_of
from fsdplint.trace import Trace

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding


@dataclass
class Proof:
    """The result of `prove`.

    Attributes:
        root: the folder of the project; the names in `diff` are relative to it.
        remaining: the findings of a check of the fixed program.
        found: further findings in the run of the fixed program.
    """

    script: Path
    verdicts: list[FixVerdict]
    trial: Trial | None = None
    remaining: list[Finding] = field(default_factory=list)
    diff: str = ""
    found: list[Finding] = field(default_factory=list)
    root: Path = Path()

    @property
    def runs(self) -> dict[str, Run]:
        """The runs by their names in reports."""
        if self.trial is None:
            return {}
        trial = self.trial
        named = {"before": trial.before, "after": trial.after, ORACLE: trial.oracle}
        return {name: run for name, run in named.items() if run is not None}

    @property
    def outside(self) -> list[str]:
        """The existing files outside of the copies that the programs wrote."""
        records = [record for run in self.runs.values() for record in run.records]
        return sorted(
            {path for one in records for path in one.outside_files if os.path.exists(path)}
        )

    @property
    def checks(self) -> list[Check]:
        if self.trial is None or self.trial.comparison is None:
            return []
        return self.trial.comparison.checks

    @property
    def holds(self) -> bool:
        """Whether all fixes are proven; without fixes, whether there are no findings."""
        if not self.verdicts:
            return not self.remaining
        return all(judged.verdict is Verdict.PROVEN for judged in self.verdicts)


def prove(options: Options, progress: Progress | None = None) -> Proof:
    """Run the program before and after its fixes, and judge each fix.

    Raises:
        ProveError: the program cannot be read, copied, fixed or started.
        WorkplaceError: there is no folder for the copies.
    """
    script = script_of(options.script)
    if options.against is not None:
        return _prove_pair(options, script, script_of(options.against), progress)
    fixes = fixes_of(script, options.unsafe, target_torch=options.target_torch)
    excluded = [_exclude_fix(finding) for finding in fixes.applied if finding.rule.changes_steps]
    if excluded:
        codes = tuple({judged.code for judged in excluded})
        fixes = fixes_of(script, options.unsafe, codes, options.target_torch)
    remaining = list(fixes.result.findings)
    if not fixes.applied:
        return Proof(script, excluded, remaining=remaining)
    with workplace("prove", options.keep, options.nodes.count > 1) as work:
        pair = pair_with_fixes(options, work, script, fixes, progress)
        lines: dict[str, list[int]] = {}
        for finding in fixes.applied:
            path, line = place_of(finding)
            lines.setdefault(path, []).append(line)
        proof = _judge_fixes(pair, fixes.applied, remaining, lines)
    proof.verdicts += excluded
    return proof


def _exclude_fix(finding: Finding) -> FixVerdict:
    """The verdict on a fix that changes the data or the gradients of the steps."""
    return FixVerdict(
        title=finding.fix.title if finding.fix is not None else finding.message,
        verdict=Verdict.NOT_COMPARABLE,
        reasons=["the fix changes the steps on purpose; this proof leaves it out"],
        code=finding.rule.code,
        at=finding.site.location(),
        message=finding.message,
    )


def _prove_pair(options: Options, script: Path, other: Path, progress: Progress | None) -> Proof:
    with workplace("prove", options.keep, options.nodes.count > 1) as work:
        pair = pair_of_programs(options, work, script, other, progress)
        trial = run_and_compare(pair, True)
        found = _runtime_findings(other, trial.traces[1], {}, [])
    judged = FixVerdict(f"{script.name} against {other.name}", *trial.verdict())
    return Proof(script, [judged], trial, found=found)


def _judge_fixes(
    pair: Pair,
    applied: Sequence[Finding],
    remaining: list[Finding],
    lines: Mapping[str, Sequence[int]],
) -> Proof:
    # Only a migration must shard the same modules; other rules may change what is sharded.
    same_units = all(finding.rule.code.startswith("FSDP2") for finding in applied)
    trial = run_and_compare(pair, same_units, lines)
    seen = reached_lines(pair, trial.before)
    traces = [trial.traces]
    if trial.resumed_runs is not None:
        seen |= reached_lines(pair, trial.resumed_runs.first)
        traces.append(trial.resumed_runs.traces)
    proof = Proof(pair.script, [], trial, remaining, root=pair.root)
    proof.diff = pair.diff()
    proof.found = _runtime_findings(pair.script, trial.traces[1], pair.contents, remaining)
    evidence = Evidence.of(
        applied,
        trial.verdict(),
        seen,
        traces,
        pair.texts,
        trial.comparison,
        trial.still_fails(),
    )
    proof.verdicts = [evidence.judge(finding) for finding in applied]
    return proof


def _runtime_findings(
    script: Path, trace: Trace, contents: Mapping[Path, bytes], known: Sequence[Finding]
) -> list[Finding]:
    """The findings in the run of the program after that a check of its code does not have."""
    from fsdplint.config.settings import SettingsError
    from fsdplint.edits.journal import Interrupted
    from fsdplint.engine.recorded import check_run
    from fsdplint.engine.session import Session

    try:
        session = Session([script])
    except (SettingsError, Interrupted) as error:
        raise ProveError(str(error)) from error
    result = check_run(session, trace, {str(path): data for path, data in contents.items()})
    seen = {(finding.rule, place_of(finding)) for finding in known}
    return [one for one in result.findings if (one.rule, place_of(one)) not in seen]
