"""`assert`: the ranks and the configurations that go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.branch_conditions import condition, rank_guard
from fsdplint.interpreter.dispatch import executes
from fsdplint.interpreter.error_handling import catches_errors
from fsdplint.interpreter.frames import FUNCTION, PROGRAM, SUITE, GuardEntry
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankTest
from fsdplint.interpreter.values import Condition, Const, Unknown, Value
from fsdplint.trace import GuardKind, Ranks


@executes(cst.Assert)
def execute_assert(run: Run, node: cst.Assert) -> None:
    """`assert rank == 0`: only these ranks get here, even if the reason is unknown.

    A test of which the ranks are not known, such as `torch.cuda.current_device() == local_rank`,
    is expected to hold on each rank that comes here.

    An assertion asks for no decision. If earlier decisions refute it, then the program ends here in
    this configuration. The run goes on, so that it shows what the code after it needs.
    """
    for test in _conjuncts(node.test):
        value = run.settle(run.eval(test))
        if isinstance(value, RankTest) and value.true_on in (Ranks.ONE, Ranks.OTHERS):
            guard = replace(rank_guard(run, test, value, True), asserted=True)
            run.guards = [*run.guards, GuardEntry(guard, "", SUITE)]
            continue
        refuting = _refuting_keys(run, value, test)
        if refuting and _ends_all_ranks(run, node):
            run.note_leaving(refuting)
            run.end_here()


def _conjuncts(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        yield from _conjuncts(test.left)
        yield from _conjuncts(test.right)
    else:
        yield test


def _refuting_keys(run: Run, value: Value, node: cst.BaseExpression) -> list[str]:
    """The keys of earlier decisions with which a test is false; none if they leave it open."""
    decisions = run.decisions
    if isinstance(value, Const) and not value.value:
        return [key for key in value.decided_by if key in decisions.values_by_key]
    if isinstance(value, Unknown) and value.origin and not value.varying:
        value = condition(run, value, node)
    if not isinstance(value, Condition):
        return []
    known = decisions.values_by_key.get(value.key)
    return [value.key] if known is not None and known == value.negated else []


def _ends_all_ranks(run: Run, node: cst.Assert) -> bool:
    """Whether a failure ends the program: every rank that goes on comes here, and nothing catches
    it.

    Ranks that left the function or the program before, as by `return`, do not go on.
    """
    ended_elsewhere = {FUNCTION, PROGRAM}
    kinds = {entry.guard.kind for entry in run.guards if entry.until not in ended_elsewhere}
    return kinds <= {GuardKind.CONFIG} and not run.callbacks and not catches_errors(run, node)
