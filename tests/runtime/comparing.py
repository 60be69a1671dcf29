"""Comparing two programs that ran in the harness."""

from __future__ import annotations

from two_ranks import Outcome

from fsdplint.runtime.proof.checkpoints import find_checkpoints
from fsdplint.runtime.proof.checks import Check, Comparison, Side
from fsdplint.runtime.proof.compare import compare


def side(outcome: Outcome) -> Side:
    """What a program that ran in the harness left to compare."""
    assert outcome.status == "ok", str(outcome)
    assert outcome.folder is not None
    files = find_checkpoints(outcome.folder / "work")
    return Side(outcome.records, outcome.trace, outcome.folder / "record/parameters.pt", files)


def compared(before: Outcome, after: Outcome, *, same_units: bool = True) -> Comparison:
    return compare(side(before), side(after), same_units=same_units)


def check(comparison: Comparison, name: str) -> Check:
    (found,) = [check for check in comparison.checks if check.name == name]
    return found
