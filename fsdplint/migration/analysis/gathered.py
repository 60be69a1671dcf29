"""Where FSDP2 has parameters gathered that FSDP1 shows as shards: after a forward without a backward."""

from __future__ import annotations

from fsdplint.migration.analysis.units import Units
from fsdplint.trace import (
    BackwardRun,
    Called,
    Escaped,
    Event,
    Fsdp1Used,
    GradMode,
    OptimizerBuilt,
    StateLoaded,
    StateTaken,
    Trace,
)
from fsdplint.trace.queries.common import happens_before_each


def left_gathered(units: Units, event: Event, module: str) -> bool:
    """Whether the model with a module last ran a forward without a backward, in this iteration of a
    loop or in the previous one, and its state was not taken or loaded since."""
    wrap = units.outermost_wrap(module)
    if wrap is None:
        return False
    trace, model = units.trace, wrap.inner
    related = [
        other
        for other in trace.events
        if other.index > wrap.index
        and _gathers_or_shards(units, other, model)
        and (isinstance(other, BackwardRun | Called) or happens_before_each(other, event))
    ]
    known = any(isinstance(other, BackwardRun) for other in related)
    before = [other for other in related if other.index < event.index]
    if before and _gathers(before[-1], backward_known=known):
        return True
    if not event.in_loop or any(other.in_loop for other in before):
        return False
    after = [other for other in related if other.index > event.index and other.in_loop]
    return bool(after) and _gathers(after[-1], backward_known=known)


def _gathers_or_shards(units: Units, event: Event, model: str) -> bool:
    match event:
        case BackwardRun():
            return True
        case Called():
            outermost = event.inside is None and units.trace.related(event.module, model)
            return outermost and computes(units.trace, event)
        case Fsdp1Used():  # the migration shards the model again before such a call
            api, module = event.api, event.module
            return "optim" in api and module is not None and units.trace.related(module, model)
        case OptimizerBuilt():  # so it is before an optimizer over its parameters
            return any(units.trace.related(module, model) for module in event.modules)
        case StateTaken():
            return _is_in(units, event.of, model)
        case StateLoaded():
            return _is_in(units, event.into, model)
    return False


def computes(trace: Trace, event: Called) -> bool:
    """Whether a call runs a forward, which a method such as `get_layers` does not.

    Unknown code that the method gives a module to may do it.
    """
    if event.via in ("call", "forward"):
        return True
    if any(event.site in other.stack for other in trace.after(event, Escaped)):
        return True
    inside = {event.index}
    for other in trace.after(event, Called):
        if other.inside in inside:
            if other.via in ("call", "forward"):
                return True
            inside.add(other.index)
    return False


def _is_in(units: Units, state: str, model: str) -> bool:
    """Whether a state is that of a model or of a model that contains it."""
    return state in units.trace.modules and units.trace.contains(state, model)


def _gathers(event: Event, *, backward_known: bool) -> bool:
    """Whether an event is a forward without a backward; code that is not known may run backwards."""
    return isinstance(event, Called) and (backward_known or event.grad is not GradMode.ON)
