"""Every FSDP1 fixture trains after its migration as it did before, on two ranks.

Where a program can go on from a checkpoint, both forms of it go on from what either of them has saved.
"""

from __future__ import annotations

import math

import fixture_runs
import pytest
from comparing import compared
from fixture_runs import CASES, NOISE, ROUNDED, Case
from two_ranks import Outcome, TwoRanks


def run(
    two_ranks: TwoRanks, files: dict[str, str], args: tuple[str, ...], first: Outcome | None = None
) -> Outcome:
    env = {"OUT_DIR": "out"}
    outcome = two_ranks.run(
        files, args=args, env=env, parameters=True, continuing=first, timeout=90
    )
    assert outcome.status == "ok", str(outcome)
    return outcome


def losses_apart(before: Outcome, after: Outcome) -> float:
    """How far the losses are apart, relative to their size."""
    return max(
        abs(x - y) / abs(x)
        for ours, theirs in zip(before.records, after.records, strict=True)
        for a, b in zip(ours.measures, theirs.measures, strict=True)
        for x, y in zip(a["losses"], b["losses"], strict=True)
    )


def parameters_apart(before: Outcome, after: Outcome) -> float:
    """How far all parameters together are apart, relative to their size."""
    difference = size = 0.0
    for name, value in before.parameters.items():
        size += float(value.double().square().sum())
        difference += float((value.double() - after.parameters[name].double()).square().sum())
    return math.sqrt(difference / size)


def check(case: Case, before: Outcome, after: Outcome) -> None:
    comparison = compared(before, after)
    assert comparison.holds, comparison.failed
    most = 1e-6 if case.apart else 0.0
    if case.apart != ROUNDED:
        assert losses_apart(before, after) <= most
    if case.apart not in (ROUNDED, NOISE):
        assert parameters_apart(before, after) <= most


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_trains_as_before(case: Case, two_ranks: TwoRanks) -> None:
    before, after = fixture_runs.texts(case)
    ours, theirs = run(two_ranks, before, case.args), run(two_ranks, after, case.args)
    check(case, ours, theirs)
    if case.then is None:
        return
    resumed = run(two_ranks, before, case.then, ours)
    for files, first in ((after, ours), (before, theirs), (after, theirs)):
        check(case, resumed, run(two_ranks, files, case.then, first))


def test_every_program_is_run() -> None:
    run_ones = {"/".join(case.path.split("/")[:2]) for case in CASES}
    assert run_ones == set(fixture_runs.programs())
