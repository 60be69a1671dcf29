"""Micro-batches whose gradients a program adds up, without a division by their number."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.trace import (
    BackwardRun,
    GradientScaled,
    OptimizerStepped,
    SyncSwitched,
    Trace,
)
from fsdplint.trace.predicates import AllOf, AnyOf, Not, Positive, Predicate, Zero, tokens_in
from fsdplint.trace.queries.common import optimizers_over
from fsdplint.trace.queries.sync_switches import (
    out_of_sight,
    reduced_by_fsdp1,
    reduces_fsdp2,
)

_DIVIDES = frozenset({"set_gradient_divide_factor", "set_reduce_scatter_divide_factor"})


def undivided_losses(trace: Trace) -> Iterator[tuple[SyncSwitched, BackwardRun]]:
    """The backward passes of micro-batches whose losses nothing divides, with the switch that says
    that several of them come before a step."""
    switches = [event for event in trace.of(SyncSwitched) if event.in_loop]
    backwards = [event for event in trace.of(BackwardRun) if event.in_loop]
    if not switches or not backwards or not all(event.of_mean for event in backwards):
        return
    if any(event.api in _DIVIDES for event in trace.of(SyncSwitched)):
        return
    if next(iter(trace.of(GradientScaled)), None) is not None:
        return
    for switch in switches:
        if out_of_sight(trace, switch.api, switch.module):
            continue
        for backward in backwards:
            if _accumulates(trace, switch, backward) and _precedes_step(trace, backward, switch):
                yield switch, backward


def _accumulates(trace: Trace, switch: SyncSwitched, backward: BackwardRun) -> bool:
    """Whether the number of the turn decides whether a backward pass synchronises."""
    if switch.api == "no_sync":
        tests = [
            test for module, test in backward.perhaps_unsynchronized if module == switch.module
        ]
        return reduced_by_fsdp1(trace, switch.module) and any(map(_is_of_turn, tests))
    if switch.api != "set_requires_gradient_sync" or not reduces_fsdp2(trace, switch):
        return False
    return switch.index < backward.index and _is_of_turn(switch.test)


def _is_of_turn(test: Predicate | None) -> bool:
    """Whether a test compares the number of a turn, such as `(i + 1) % n == 0`."""
    match test:
        case Not():
            return _is_of_turn(test.inner)
        case AllOf() | AnyOf():
            return any(map(_is_of_turn, test.parts))
        case Zero() | Positive():
            return bool(tokens_in([test]))
    return False


def _precedes_step(trace: Trace, backward: BackwardRun, switch: SyncSwitched) -> bool:
    """Whether an optimizer of the module of the switch steps after a backward pass."""
    optimizers = optimizers_over(trace, switch.module)
    steps = trace.after(backward, OptimizerStepped)
    return any(step.optimizer in optimizers for step in steps)
