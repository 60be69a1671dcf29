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
from fsdplint.trace.queries.sync_switches import (
    optimizers_over,
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
        if _accumulates(trace, switch) and not out_of_sight(trace, switch.api, switch.module):
            yield from (
                (switch, event) for event in backwards if _precedes_step(trace, event, switch)
            )


def _accumulates(trace: Trace, switch: SyncSwitched) -> bool:
    """Whether a switch turns synchronisation off for some micro-batches."""
    if switch.enabled is True or (switch.enabled is None and switch.test is None):
        return False
    if switch.api == "no_sync":
        return reduced_by_fsdp1(trace, switch.module)
    return switch.api == "set_requires_gradient_sync" and reduces_fsdp2(trace, switch)


def _precedes_step(trace: Trace, backward: BackwardRun, switch: SyncSwitched) -> bool:
    """Whether an optimizer of the module of the switch steps after a backward pass."""
    optimizers = optimizers_over(trace, switch.module)
    steps = trace.after(backward, OptimizerStepped)
    return any(step.optimizer in optimizers for step in steps)
