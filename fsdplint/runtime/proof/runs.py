"""The runs of a proof and their verdict as a whole.

The program after is compared with the program before. If the program before is wrong itself (it
fails, trains nothing, or has an error that a rule finds in its run only), the program after is
compared with the oracle: the program before with plain data parallelism instead of sharding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fsdplint.report.result import plural
from fsdplint.runtime.launch.failures import (
    fail_in_same_way,
    failure_summary,
    refused_arguments,
    refused_arguments_text,
)
from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.proof.amplified_rounding import VALUES, explain, noise_of
from fsdplint.runtime.proof.checkpoints import holds_parts
from fsdplint.runtime.proof.checks import Check, Comparison, Side
from fsdplint.runtime.proof.compare import compare
from fsdplint.runtime.proof.program_pair import Pair, ProveError
from fsdplint.runtime.proof.resuming import ResumedRuns, go_on, resume
from fsdplint.runtime.proof.verdicts import Verdict
from fsdplint.trace import Trace

ORACLE = "without sharding"
# The checks that may differ because a fix removes an error of the program before.
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
OTHER_LAYOUT = "both programs train the same, but the ranks hold or send something else"
# The checks with the oracle that are shown as information.
_REFERENCE_CHECKS = ("losses", "gradient norms", "parameters")


@dataclass
class Trial:
    """The runs of a proof and their comparison.

    Attributes:
        traces: the traces of the program before and after.
        oracle: the run without sharding, if there is one and it succeeded.
        before_failure: why the run before cannot be compared with; empty if it can.
        mended_error: the error that a fix removes, if its effects were compared with the oracle;
            otherwise empty.
        comparison: None if there was no run to compare with.
        amplification: why rounding alone makes the runs of the program too different to compare;
            empty if it does not.
        rerun_difference: the first difference between two runs of the same program; empty if there
            is none, None if no second run was needed.
        weights_difference: why the two runs start with different weights; empty if they do not.
        resumed_runs: the runs from checkpoints, if the options ask for them.
        migration: whether all fixes are a migration, which removes no errors.
    """

    before: Run
    after: Run
    traces: tuple[Trace, Trace]
    oracle: Run | None = None
    before_failure: str = ""
    mended_error: str = ""
    comparison: Comparison | None = None
    rerun_difference: str | None = None
    amplification: str = ""
    weights_difference: str = ""
    resumed_runs: ResumedRuns | None = None
    migration: bool = False

    @property
    def deterministic(self) -> bool | None:
        return None if self.rerun_difference is None else not self.rerun_difference

    @property
    def is_untrained(self) -> bool:
        """Whether neither run made an optimizer step, and nothing else differs."""
        failed = self.comparison.differences if self.comparison is not None else []
        runs = (self.before, self.after)
        has_steps = any(record.measures for run in runs for record in run.records)
        return not has_steps and [check.name for check in failed] == ["steps"]

    def still_fails(self) -> set[tuple[str, int]]:
        """The places (path, line) at which the program after fails as the program before does.

        Empty for a migration, which does not have to remove such a failure.
        """
        if self.migration or self.after.ok or not fail_in_same_way(self.before, self.after):
            return set()
        found = (end.where.rpartition(":") for end in self.after.ends if end.where)
        return {(os.path.realpath(path), int(line)) for path, _, line in found}

    def verdict(self) -> tuple[Verdict, list[str]]:
        """The verdict on all changes together, with the reasons."""
        if not self.after.ok:
            how = failure_summary(self.after, "after")
            if fail_in_same_way(self.before, self.after):
                return Verdict.NOT_COMPARABLE, [
                    "the program fails in the same way before and after",
                    how,
                ]
            return Verdict.REFUTED, [how]
        if self.comparison is None:
            nothing = "the program after succeeds, but there is no run to compare it with"
            return Verdict.NOT_COMPARABLE, [self.before_failure, nothing]
        instead = (
            [self.before_failure, f"compared with the program {ORACLE}"]
            if self.before_failure
            else []
        )
        if self.mended_error:
            instead = [
                self.mended_error,
                f"what the error changes is compared with the program {ORACLE}",
            ]
        if self.comparison.holds:
            return Verdict.PROVEN, instead
        reasons = [f"{check.name}: {check.detail}" for check in self.comparison.differences]
        if self.comparison.same_training:
            return Verdict.OTHER_LAYOUT, [*instead, OTHER_LAYOUT, *reasons]
        if self.is_untrained:
            nothing = (
                "neither run made an optimizer step: give arguments with which the program trains"
            )
            return Verdict.NOT_COMPARABLE, [*instead, nothing]
        # The resumed runs are made only if the first runs agree.
        if self.resumed_runs is not None and self.resumed_runs.lost_state:
            return Verdict.NOT_COMPARABLE, [*instead, self.resumed_runs.lost_state, *reasons]
        if self.weights_difference:
            return Verdict.NOT_COMPARABLE, [*instead, self.weights_difference, *reasons]
        if self.rerun_difference:
            text = (
                f"the program does not agree with itself in a second run: {self.rerun_difference}"
            )
            return Verdict.NOT_COMPARABLE, [*instead, text, *reasons]
        if self.amplification:
            return Verdict.NOT_COMPARABLE, [*instead, self.amplification, *reasons]
        return Verdict.REFUTED, [*instead, *reasons]


def run_and_compare(
    pair: Pair,
    same_units: bool,
    lines: Mapping[str, Sequence[int]] | None = None,
) -> Trial:
    """Run both programs, and further runs that their comparison needs.

    same_units: whether the same modules must be sharded in both, as in a migration.
    lines: the lines of the program before to report, see `reached_lines`.

    Raises:
        ProveError: the program rejects its arguments, or cannot be copied or started.
    """
    ranks = pair.options.ranks * pair.options.nodes.count
    pair.progress(f"running {pair.script.name} as it is on {plural(ranks, 'rank')}")
    before = pair.run("before", lines)
    usage = refused_arguments(before)
    if usage:
        raise ProveError(refused_arguments_text(pair.script, usage))
    first = None
    if pair.options.resume is not None and before.ok:
        first = go_on(pair, before, lines)
    pair.progress(f"running {pair.other_script.name} after the change")
    after = pair.run("after")
    traces = pair.trace(before, "before"), pair.trace(after, "after")
    trial = Trial(before, after, traces, migration=same_units)
    trial.before_failure = _failure_reason(before, after)
    if not after.ok:
        return trial
    if trial.before_failure or pair.options.oracle:
        pair.progress(f"running it {ORACLE}")
        trial.oracle = _oracle(pair)
    _compare(pair, trial, same_units)
    if (
        not trial.before_failure
        and trial.comparison is not None
        and not trial.comparison.same_training
    ):
        _compare_with_reference(pair, trial)
    _explain_by_rounding(pair, trial)
    if trial.comparison is not None and not trial.comparison.same_training:
        trial.weights_difference = initial_weights_reason(*traces)
    if trial.comparison is not None and trial.comparison.same_training and first is not None:
        trial.resumed_runs = resume(pair, before, first, same_units)
        trial.rerun_difference = trial.resumed_runs.rerun_difference
        trial.comparison.checks += trial.resumed_runs.checks
    return trial


def _failure_reason(before: Run, after: Run) -> str:
    if not before.ok:
        return failure_summary(before, "before")
    if _updates(after) and not _updates(before) and any(r.measures for r in before.records):
        return "the program before trains nothing: no optimizer step changed a parameter"
    return ""


def _updates(run: Run) -> bool:
    return any(line["updated"] for record in run.records for line in record.measures)


def _oracle(pair: Pair) -> Run | None:
    """Run the program before without sharding; None if it fails or trains nothing.

    The program after is no reference: a wrong fix may break more than the sharding.
    """
    run = pair.run("before without sharding", oracle=True)
    return run if run.ok and _updates(run) else None


def _compare(pair: Pair, trial: Trial, same_units: bool) -> None:
    candidate = pair.side(trial.after, trial.traces[1])
    oracle = pair.side_of(trial.oracle) if trial.oracle is not None else None
    if not trial.before_failure:
        reference, units = pair.side(trial.before, trial.traces[0]), same_units
    elif oracle is not None:
        reference, units = oracle, False
    else:
        return
    trial.comparison = compare(reference, candidate, same_units=units)
    if trial.before_failure:
        before = pair.side(trial.before, trial.traces[0])
        trial.comparison = _excuse_partial_checkpoints(trial.comparison, before, candidate)
    if not trial.comparison.same_training and not trial.is_untrained:
        # Before a fix is refuted: do two runs of the same program agree?
        pair.progress("the runs differ: running the program once more")
        trial.rerun_difference = _rerun_difference(
            pair, reference, oracle if trial.before_failure else None
        )
    if oracle is not None and not trial.before_failure:
        trial.comparison.checks += _reference_checks(compare(oracle, candidate, same_units=False))


def _compare_with_reference(pair: Pair, trial: Trial) -> None:
    """Compare with the oracle what an error of the program before changes.

    Only if a rule finds the error in the run before and not in the run after.
    """
    error = trial.rerun_difference == "" and find_mended_error(*trial.traces)
    if not error:
        return
    if trial.oracle is None:
        pair.progress(f"running it {ORACLE}")
        trial.oracle = _oracle(pair)
    if trial.oracle is None:
        return
    assert trial.comparison is not None
    candidate = pair.side(trial.after, trial.traces[1])
    oracle_checks = {
        check.name: check
        for check in compare(pair.side_of(trial.oracle), candidate, same_units=False).checks
    }
    checks = [
        oracle_checks.get(check.name, check) if check.fails and _is_training(check) else check
        for check in trial.comparison.checks
    ]
    if Comparison(checks).same_training:
        trial.comparison, trial.mended_error = Comparison(checks), error


def _explain_by_rounding(pair: Pair, trial: Trial) -> None:
    """Accept differences in values that the program makes of rounding in its gradients."""
    if trial.before_failure or trial.comparison is None or trial.rerun_difference != "":
        return
    failing = [check.name for check in trial.comparison.differences if not check.layout]
    if not failing or not all(map(_holds_values, failing)):
        return
    before = pair.side(trial.before, trial.traces[0])
    pair.progress("running the program with its gradients rounded in another way")
    run = pair.run("before with noise", noise=noise_of(before))
    if run.ok:
        after = pair.side(trial.after, trial.traces[1])
        found = explain(trial.comparison, before, after, pair.side_of(run))
        trial.comparison, trial.amplification = found.comparison, found.limit


def _holds_values(name: str) -> bool:
    """Whether a check compares numbers that training computes."""
    return name in VALUES or name.startswith("checkpoint ")


def _is_training(check: Check) -> bool:
    """Whether a check compares what is trained and saved, which sharding does not change."""
    return check.name in _TRAINING or check.name.startswith("checkpoint")


def _excuse_partial_checkpoints(comparison: Comparison, before: Side, after: Side) -> Comparison:
    """Accept, in a comparison with the oracle, checkpoints that hold one rank's part as before.

    The oracle writes full tensors. A fix need not change how the program writes its checkpoints.
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


def find_mended_error(before: Trace, after: Trace) -> str:
    """The error that a rule finds in the run before and not in the run after; empty if none."""
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
                f"the program before does not train as intended: {rule.code} at "
                f"{os.path.basename(at.path)}:{at.line}, {found.message}"
            )
    return ""


def initial_weights_reason(before: Trace, after: Trace) -> str:
    """Why the two runs start with different weights, if a rule finds it in both; else empty."""
    from fsdplint.registry.rules import all_rules

    for rule in (cls() for cls in all_rules() if cls.init_depends_on_sharding):
        found = next(iter(rule.check(before)), None)
        if found is not None and list(rule.check(after)):
            at = found.site.location()
            return (
                "the runs start with different weights because their models are sharded "
                f"differently: {rule.code} at {os.path.basename(at.path)}:{at.line}, "
                f"{found.message}; for a proof, give all ranks the same seed"
            )
    return ""


def _rerun_difference(pair: Pair, reference: Side, oracle: Side | None) -> str | None:
    name = "before" if oracle is None else oracle.parameters.parent.parent.name
    again = pair.run(f"{name} again", oracle=oracle is not None)
    if not again.ok:
        return failure_summary(again, "in a second run")
    repeated = compare(reference, pair.side_of(again), same_units=True)
    return next((f"{check.name}: {check.detail}" for check in repeated.differences), "")


def _reference_checks(comparison: Comparison) -> list[Check]:
    """Checks with the oracle as information: sharding may round differently."""
    return [
        replace(check, name=f"{ORACLE}: {check.name}", binding=False)
        for check in comparison.checks
        if check.name in _REFERENCE_CHECKS
    ]
