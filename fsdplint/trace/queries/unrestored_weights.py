"""Weights that a context manager sets for an evaluation, and that training goes on from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    BackwardRun,
    Called,
    CopiedToItself,
    Event,
    GradMode,
    OptimizerBuilt,
    OptimizerStepped,
    StateLoaded,
    Trace,
    WeightsSet,
    WeightsUnrestored,
)
from fsdplint.trace.queries.common import only_fsdp2


@dataclass(frozen=True)
class UnrestoredWeights:
    """A context that leaves other weights in a model than it had before.

    Attributes:
        context: the context.
        model: the model.
        written: where the context sets the weights.
        evaluated: the first forward with them.
        step: the next step of an optimizer of the model.
    """

    context: WeightsUnrestored
    model: str
    written: Event
    evaluated: Called
    step: OptimizerStepped


def unrestored_weights(trace: Trace) -> Iterator[UnrestoredWeights]:
    """The contexts for an evaluation after which a model trains with the weights that they set."""
    if not trace.complete:
        return
    for context in trace.of(WeightsUnrestored):
        if context.ranks.partial or any(guard.of_tensor for guard in context.guards):
            continue
        for model in context.modules:
            found = _weights_of_context(trace, context, model)
            if found is not None:
                yield found


def _weights_of_context(
    trace: Trace, context: WeightsUnrestored, model: str
) -> UnrestoredWeights | None:
    family = trace.family(model)
    inside = trace.events[context.entered : context.index]
    calls = [one for one in inside if isinstance(one, Called) and one.module in family]
    off = bool(calls) and all(one.grad in (GradMode.OFF, GradMode.INFERENCE) for one in calls)
    if not off or any(isinstance(one, BackwardRun | OptimizerStepped) for one in inside):
        return None
    step = _next_step(trace, context, family)
    if step is None or not only_fsdp2(trace, model, context) or trace.escaped(model, step):
        return None
    if any(_sets(one, family) for one in trace.events[context.entered : step.index]):
        return None
    written = [one for one in trace.events[context.begun : context.entered] if _sets(one, family)]
    return UnrestoredWeights(context, model, written[0], calls[0], step) if written else None


def _next_step(
    trace: Trace, context: WeightsUnrestored, family: set[str]
) -> OptimizerStepped | None:
    optimizers = {
        built.optimizer
        for built in trace.of(OptimizerBuilt)
        if not family.isdisjoint(built.modules)
    }
    steps = trace.after(context, OptimizerStepped)
    return next((one for one in steps if one.optimizer in optimizers), None)


def _sets(event: Event, family: set[str]) -> bool:
    """Whether an event may set the weights of a model."""
    if isinstance(event, StateLoaded):
        return event.into in family
    if isinstance(event, CopiedToItself):
        return True
    return isinstance(event, WeightsSet) and (
        event.in_place and (not event.modules or not family.isdisjoint(event.modules))
    )
