"""The runs of a proof, and what they show as a whole.

The program after is compared with the program before. Where that one is broken itself (it does not
come to its end, trains nothing, or makes an error that a rule finds in it and not in the other),
it is compared with the oracle: the program before with plain data parallelism in place of
its sharding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fsdplint.report.result import plural
from fsdplint.runtime.launch.failures import (
    arguments_wanted,
    fail_alike,
    failure,
    refused_arguments,
)
from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.proof.checkpoints import holds_parts
from fsdplint.runtime.proof.checks import Check, Comparison, Side
from fsdplint.runtime.proof.compare import compare
from fsdplint.runtime.proof.program_pair import Pair, ProveError
from fsdplint.runtime.proof.resuming import ResumedRuns, go_on, resume
from fsdplint.runtime.proof.verdicts import Verdict
from fsdplint.trace import Trace

ORACLE = "without sharding"
# What a program may be broken in that a fix mends.
_TRAINING = frozenset(
    (
        "steps",
        "losses",
        "gradient norms",
        "gradient norms at the optimizer step",
        "gradient clipping",
        "parameter groups",
        "parameters",
        "optimizer state",
    )
)
OTHER_LAYOUT = "the two train alike, but the ranks hold or send something else"
# What is told of the oracle beside a comparison of the program with itself.
_TOLD = ("losses", "gradient norms", "parameters")


@dataclass
class Trial:
    """What was run, and what the comparison found.

    Attributes:
        traces: of the program before and after.
        oracle: the run without sharding, where there was one that came to its end.
        broken: why the program before cannot be compared with, empty where it can.
        mended: the error of the program before that the other one does not make, where they differ
            in what it changes and that was compared with the oracle; empty otherwise.
        comparison: None where there was nothing to compare.
        unlike: where the program that was compared with first differs from itself in a second
            run; empty where it does not, None where that did not have to be tried.
        blended: why the two do not start with the same weights, empty where nothing says so.
        resumed: what was seen when both went on from checkpoints, where that was wanted.
        migration: whether nothing but a migration is tried, which mends no error of the program's.
    """

    before: Run
    after: Run
    traces: tuple[Trace, Trace]
    oracle: Run | None = None
    broken: str = ""
    mended: str = ""
    comparison: Comparison | None = None
    unlike: str | None = None
    blended: str = ""
    resumed: ResumedRuns | None = None
    migration: bool = False

    @property
    def deterministic(self) -> bool | None:
        return None if self.unlike is None else not self.unlike

    @property
    def untrained(self) -> bool:
        """Whether neither made a step, and they agree in all else."""
        failed = self.comparison.failed if self.comparison is not None else []
        runs = (self.before, self.after)
        made = any(record.measures for run in runs for record in run.records)
        return not made and [check.name for check in failed] == ["steps"]

    def still_fails(self) -> set[tuple[str, int]]:
        """The places (path, line) at which the program after ended as the one before had.

        None for a migration: it is not what was to mend that.
        """
        if self.migration or self.after.ok or not fail_alike(self.before, self.after):
            return set()
        found = (end.where.rpartition(":") for end in self.after.ends if end.where)
        return {(os.path.realpath(path), int(line)) for path, _, line in found}

    def verdict(self) -> tuple[Verdict, list[str]]:
        """The verdict on all that changed, and why."""
        if not self.after.ok:
            how = failure(self.after, "after")
            if fail_alike(self.before, self.after):
                return Verdict.NOT_COMPARABLE, ["the program fails as it does before", how]
            return Verdict.REFUTED, [how]
        if self.comparison is None:
            nothing = "the program after ran to its end; there is nothing to compare it with"
            return Verdict.NOT_COMPARABLE, [self.broken, nothing]
        instead = [self.broken, f"compared with the program {ORACLE}"] if self.broken else []
        if self.mended:
            instead = [self.mended, f"what that changes is compared with the program {ORACLE}"]
        if self.comparison.holds:
            return Verdict.PROVEN, instead
        reasons = [f"{check.name}: {check.detail}" for check in self.comparison.failed]
        if self.comparison.trains_alike:
            return Verdict.OTHER_LAYOUT, [*instead, OTHER_LAYOUT, *reasons]
        if self.untrained:
            nothing = (
                "no optimizer step was made in either run: give arguments with which it trains"
            )
            return Verdict.NOT_COMPARABLE, [*instead, nothing]
        # It has failed only where the programs go on, or they had not been made to.
        if self.resumed is not None and self.resumed.lost:
            return Verdict.NOT_COMPARABLE, [*instead, self.resumed.lost, *reasons]
        if self.blended:
            return Verdict.NOT_COMPARABLE, [*instead, self.blended, *reasons]
        if self.unlike:
            text = f"the program does not agree with itself in a second run: {self.unlike}"
            return Verdict.NOT_COMPARABLE, [*instead, text, *reasons]
        return Verdict.REFUTED, [*instead, *reasons]


def run_and_compare(
    pair: Pair,
    same_units: bool,
    lines: Mapping[str, Sequence[int]] | None = None,
) -> Trial:
    """Run both programs, and what else it takes to compare them.

    same_units: whether the same modules must be sharded in both, as in a migration.
    lines: the lines of the program before that are asked for, see `reached`.

    Raises:
        ProveError: the program does not take its arguments, or cannot be copied or started.
    """
    ranks = pair.options.ranks * pair.options.nodes.count
    pair.progress(f"running {pair.script.name} as it is on {plural(ranks, 'rank')}")
    before = pair.run("before", lines)
    usage = refused_arguments(before)
    if usage:
        raise ProveError(arguments_wanted(pair.script, usage))
    first = None
    if pair.options.resume is not None and before.ok:
        first = go_on(pair, before, lines)
    pair.progress(f"running {pair.other_script.name} after the change")
    after = pair.run("after")
    traces = pair.trace(before, "before"), pair.trace(after, "after")
    trial = Trial(before, after, traces, migration=same_units)
    trial.broken = _failure_reason(before, after)
    if not after.ok:
        return trial
    if trial.broken or pair.options.oracle:
        pair.progress(f"running it {ORACLE}")
        trial.oracle = _oracle(pair)
    _compare(pair, trial, same_units)
    if not trial.broken and trial.comparison is not None and not trial.comparison.trains_alike:
        _compare_as_meant(pair, trial)
    if trial.comparison is not None and not trial.comparison.trains_alike:
        trial.blended = initial_weights_reason(*traces)
    if trial.comparison is not None and trial.comparison.trains_alike and first is not None:
        trial.resumed = resume(pair, before, first, same_units)
        trial.unlike = trial.resumed.unlike
        trial.comparison.checks += trial.resumed.checks
    return trial


def _failure_reason(before: Run, after: Run) -> str:
    if not before.ok:
        return failure(before, "before")
    if _updates(after) and not _updates(before) and any(r.measures for r in before.records):
        return "the program before trains nothing: no optimizer step changed a parameter"
    return ""


def _updates(run: Run) -> bool:
    return any(line["updated"] for record in run.records for line in record.measures)


def _oracle(pair: Pair) -> Run | None:
    """The program before without sharding, None where that fails too.

    Never the one after: what a wrong fix breaks beside the sharding, that one breaks as well.
    """
    run = pair.run("before without sharding", oracle=True)
    return run if run.ok and _updates(run) else None


def _compare(pair: Pair, trial: Trial, same_units: bool) -> None:
    theirs = pair.side(trial.after, trial.traces[1])
    oracle = pair.side_of(trial.oracle) if trial.oracle is not None else None
    if not trial.broken:
        ours, units = pair.side(trial.before, trial.traces[0]), same_units
    elif oracle is not None:
        ours, units = oracle, False
    else:
        return
    trial.comparison = compare(ours, theirs, same_units=units)
    if trial.broken:
        left = pair.side(trial.before, trial.traces[0])
        trial.comparison = _but_parts(trial.comparison, left, theirs)
    if not trial.comparison.trains_alike and not trial.untrained:
        # Before anything is refuted: does the program agree with itself?
        pair.progress("the runs differ: running the program once more")
        trial.unlike = _rerun_difference(pair, ours, oracle if trial.broken else None)
    if oracle is not None and not trial.broken:
        trial.comparison.checks += _told(compare(oracle, theirs, same_units=False))


def _compare_as_meant(pair: Pair, trial: Trial) -> None:
    """The program before may train what it is not meant to: does the one after train as meant?

    Only where a rule of errors found it in the run before, and finds nothing in the one after.
    """
    error = trial.unlike == "" and mended_error(*trial.traces)
    if not error:
        return
    if trial.oracle is None:
        pair.progress(f"running it {ORACLE}")
        trial.oracle = _oracle(pair)
    if trial.oracle is None:
        return
    assert trial.comparison is not None
    theirs = pair.side(trial.after, trial.traces[1])
    meant = {
        check.name: check
        for check in compare(pair.side_of(trial.oracle), theirs, same_units=False).checks
    }
    checks = [
        meant.get(check.name, check) if check.fails and _is_training(check) else check
        for check in trial.comparison.checks
    ]
    if Comparison(checks).trains_alike:
        trial.comparison, trial.mended = Comparison(checks), error


def _is_training(check: Check) -> bool:
    """Whether a check is about what is trained and saved, which sharding does not change."""
    return check.name in _TRAINING or check.name.startswith("checkpoint")


def _but_parts(comparison: Comparison, before: Side, after: Side) -> Comparison:
    """A comparison with the oracle, in which no fix has to mend how checkpoints are written.

    Where the program before writes single ranks' parts and no fix is about that, the program after
    does so too.
    """
    checks = []
    for check in comparison.checks:
        file = check.name.removeprefix("checkpoint ")
        if check.fails and file in before.files and file in after.files:
            if holds_parts(before.files[file]) and holds_parts(after.files[file]):
                detail = "holds only one rank's part, as before"
                check = replace(check, binding=False, detail=detail)
        checks.append(check)
    return Comparison(checks)


def mended_error(before: Trace, after: Trace) -> str:
    """An error that a rule finds in the run before and in the one after no more."""
    from fsdplint.diagnostics.finding import Severity
    from fsdplint.registry.rules import all_rules

    for cls in all_rules():
        rule = cls()
        if rule.severity is not Severity.ERROR or rule.grouped or not rule.code.startswith("FSDP"):
            continue
        found = next(iter(rule.check(before)), None)
        if found is not None and not list(rule.check(after)):
            at = found.site.location()
            return (
                f"the program before does not train as it is meant to: {rule.code} at "
                f"{os.path.basename(at.path)}:{at.line}, {found.message}"
            )
    return ""


def initial_weights_reason(before: Trace, after: Trace) -> str:
    """Why the whole weights of the two differ from the start, as a rule finds it in both runs."""
    from fsdplint.registry.rules import all_rules

    for rule in (cls() for cls in all_rules() if cls.init_depends_on_sharding):
        found = next(iter(rule.check(before)), None)
        if found is not None and list(rule.check(after)):
            at = found.site.location()
            return (
                "the two do not start with the same weights, as their models are cut differently: "
                f"{rule.code} at {os.path.basename(at.path)}:{at.line}, {found.message}; for a "
                "proof, seed all ranks alike"
            )
    return ""


def _rerun_difference(pair: Pair, ours: Side, oracle: Side | None) -> str | None:
    name = "before" if oracle is None else oracle.parameters.parent.parent.name
    again = pair.run(f"{name} again", oracle=oracle is not None)
    if not again.ok:
        return failure(again, "in a second run")
    repeated = compare(ours, pair.side_of(again), same_units=True)
    return next((f"{check.name}: {check.detail}" for check in repeated.failed), "")


def _told(comparison: Comparison) -> list[Check]:
    """The comparison with the oracle where it does not decide: sharding may round differently."""
    return [
        replace(check, name=f"{ORACLE}: {check.name}", binding=False)
        for check in comparison.checks
        if check.name in _TOLD
    ]
