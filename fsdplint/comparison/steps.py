"""What happens around the steps of an optimizer: zeroed gradients, schedulers, scalers."""

from __future__ import annotations

import libcst as cst

from fsdplint.comparison.facts import Plan
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import function_around
from fsdplint.trace import (
    BackwardRun,
    Event,
    GradientsZeroed,
    OptimizerStepped,
    ScalerStepped,
    SchedulerStepped,
    Trace,
)


def add_steps(plan: Plan, trace: Trace) -> None:
    """Add the facts around the steps."""
    _add_zeroed(plan, trace)
    _add_scheduler_loops(plan, trace)
    stepped = next(iter(trace.of(ScalerStepped)), None)
    if stepped is not None:
        plan.add("optimizer steps", "", "by the gradient scaler", stepped)


def _add_zeroed(plan: Plan, trace: Trace) -> None:
    """Whether gradients are set to zero in the loop, and whether that drops those of a pass."""
    zeroed = next((event for event in trace.of(GradientsZeroed) if event.in_loop), None)
    if zeroed is not None:
        plan.add("gradients are set to zero", "", "in the loop", zeroed)
    passed = False
    dropped: dict[str, GradientsZeroed] = {}
    for event in trace:
        if isinstance(event, BackwardRun):
            passed = True
        elif isinstance(event, GradientsZeroed) and passed:
            dropped.setdefault(event.optimizer, event)
        elif isinstance(event, OptimizerStepped | ScalerStepped):
            found = dropped.pop(event.optimizer, None)
            if found is not None:
                plan.add("gradients of a pass are set to zero", "", "before the step", found)
            passed = False


def _add_scheduler_loops(plan: Plan, trace: Trace) -> None:
    """Whether a scheduler steps in the loop of the optimizer's steps, or in one around it."""
    loops = {
        loop
        for event in trace.of(OptimizerStepped, ScalerStepped)
        if (loop := _loop_of(event)) is not None
    }
    functions = {function_around(source, node) for source, node in loops}
    for event in trace.of(SchedulerStepped):
        loop = _loop_of(event)
        if loop is None or function_around(*loop) not in functions:
            continue
        value = "in the loop of the steps" if loop in loops else "in another loop"
        plan.add("learning rate scheduler steps", "loop", value, event)


def _loop_of(event: Event) -> tuple[Source, cst.CSTNode] | None:
    """The innermost loop around the code of an event, within its function."""
    site = event.site
    if not isinstance(site, NodeSite):
        return None
    node = site.source.parent(site.node)
    while node is not None and not isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda):
        if isinstance(node, cst.For | cst.While):
            return site.source, node
        node = site.source.parent(node)
    return None
