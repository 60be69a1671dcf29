"""Clipping that comes before all gradients of its step are there."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.trace import (
    BackwardRun,
    Clipped,
    Event,
    GradientsZeroed,
    OptimizerStepped,
    Trace,
)
from fsdplint.trace.queries.clipping import (
    is_counter,
    may_only_measure,
    optimizers_of,
    turns_of,
)


def clipped_before_backward(trace: Trace) -> Iterator[tuple[Clipped, BackwardRun]]:
    """Clipping of gradients that are zero, before the backward pass whose step it is for."""
    for clipped in trace.of(Clipped):
        optimizers = optimizers_of(trace, clipped)
        if not clipped.without_gradients or may_only_measure(clipped) or not optimizers:
            continue
        if not trace.complete or clipped.ranks.partial:
            continue
        backward = _unclipped_pass(trace, clipped, optimizers)
        if backward is not None:
            yield clipped, backward


def _unclipped_pass(trace: Trace, clipped: Clipped, optimizers: set[str]) -> BackwardRun | None:
    """The backward pass after a clipping, if a step uses its gradients and nothing clips them."""
    backward = None
    kinds = BackwardRun, Clipped, GradientsZeroed, OptimizerStepped
    for event in trace.after(clipped, *kinds):
        if isinstance(event, BackwardRun):
            backward = event
        elif isinstance(event, Clipped):
            return None
        elif isinstance(event, OptimizerStepped | GradientsZeroed):
            if event.optimizer in optimizers:
                stepped = isinstance(event, OptimizerStepped)
                same = backward is not None and turns_of(backward) == turns_of(clipped)
                return backward if stepped and same else None
    return None


def clipped_in_each_turn(trace: Trace) -> Iterator[tuple[Clipped, BackwardRun]]:
    """Clipping after each backward pass of several that accumulate gradients for one step."""
    for clipped in trace.of(Clipped):
        optimizers = optimizers_of(trace, clipped)
        if not clipped.again or may_only_measure(clipped) or not optimizers:
            continue
        if not trace.complete or clipped.ranks.partial:
            continue
        before = [*trace.before(clipped, BackwardRun, Clipped, OptimizerStepped, GradientsZeroed)]
        last = max((i for i, event in enumerate(before) if _is_same(event, clipped)), default=None)
        if last is None:
            continue
        since = before[last + 1 :]
        passes = [event for event in since if isinstance(event, BackwardRun)]
        if len(passes) == 1 and all(
            isinstance(event, Clipped | BackwardRun) or _is_in_some_turns(event, clipped)
            for event in since
        ):
            if any(
                isinstance(step, OptimizerStepped) and step.optimizer in optimizers
                for step in trace.after(clipped, OptimizerStepped)
            ):
                yield clipped, passes[0]


def _is_same(event: Event, clipped: Clipped) -> bool:
    """Whether an event is the same clipping in an earlier turn; a helper may make all calls."""
    same = event.site == clipped.site and event.stack == clipped.stack
    return isinstance(event, Clipped) and same


def _is_in_some_turns(event: Event, clipped: Clipped) -> bool:
    """Whether an event comes in every Nth of the turns of a loop in which a clipping comes."""
    own = turns_of(clipped)
    further = [g for g in event.guards if (g.site or g.text, g.holds) not in own]
    return turns_of(event) > own and any(map(is_counter, further))
