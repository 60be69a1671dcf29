"""Weights that a program keeps without a copy and puts back after they have changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    Called,
    CopiedToItself,
    Event,
    Loaded,
    ModuleMoved,
    OptimizerBuilt,
    OptimizerStepped,
    Sharded,
    StateLoaded,
    StateTaken,
    SyncSwitched,
    Trace,
    WeightsSet,
)
from fsdplint.trace.groups import Groups, sharded_by
from fsdplint.trace.queries.common import is_under_varying_test, only_fsdp2


@dataclass(frozen=True)
class PutBack:
    """Weights that are put back into a model whose memory they share.

    Attributes:
        put_back: the load or the copy.
        model: the model.
        kept: where the program takes the state that it keeps; None for single parameters.
        changed: what changed the weights before they are put back.
    """

    put_back: StateLoaded | CopiedToItself
    model: str
    kept: StateTaken | None
    changed: Event


def weights_put_back(trace: Trace) -> Iterator[PutBack]:
    for event in trace.of(StateLoaded, CopiedToItself):
        if any(guard.of_tensor for guard in event.guards):
            continue
        found = None
        if isinstance(event, StateLoaded):
            found = _state(trace, event)
        elif isinstance(event, CopiedToItself):
            found = _copy(trace, event)
        if found is not None:
            yield found


def _state(trace: Trace, event: StateLoaded) -> PutBack | None:
    """A state that is loaded into the model that it is from."""
    if not event.of_itself or event.state is None or not only_fsdp2(trace, event.into, event):
        return None
    kept = [one for one in trace.before(event, StateTaken) if one.state == event.state]
    if not kept or kept[-1].of not in trace.modules:
        return None
    between = trace.events[kept[-1].index + 1 : event.index]
    for one in between:
        if isinstance(one, Loaded) and event.state in (one.state, *one.states):
            return None
    changed = _change(trace, event.into, between) or _change_in_turns(trace, event, kept[-1])
    return PutBack(event, event.into, kept[-1], changed) if changed is not None else None


def _change_in_turns(trace: Trace, event: StateLoaded, kept: StateTaken) -> Event | None:
    """What changes the weights in a loop after a turn that keeps them, if not every turn does."""
    if event.in_loop or not is_under_varying_test(kept) or kept.guards == event.guards:
        return None
    turns = [one for one in trace.before(kept, StateTaken) if _is_at(one, kept)]
    if not turns:
        return None
    return _change(trace, event.into, trace.events[turns[-1].index + 1 : kept.index])


def _copy(trace: Trace, event: CopiedToItself) -> PutBack | None:
    """A parameter that is copied to itself."""
    if not event.modules:
        return None
    model = event.modules[0]
    if not only_fsdp2(trace, model, event):
        units = [unit for unit in trace.ancestors(model) if only_fsdp2(trace, unit, event)]
        if not units:
            return None
        model = units[0]
    before = [one for one in trace.events[event.taken_at : event.index] if not _is_at(one, event)]
    changed = _change(trace, model, before)
    return PutBack(event, model, None, changed) if changed is not None else None


def _is_at(one: Event, event: Event) -> bool:
    """Whether an event is about the same call as another one."""
    return one.site == event.site and one.stack == event.stack


def _change(trace: Trace, model: str, events: list[Event]) -> Event | None:
    """The last event that changes the weights of a model; None if they may be other tensors now."""
    family = trace.family(model)
    optimizers = {
        built.optimizer
        for built in trace.of(OptimizerBuilt)
        if not family.isdisjoint(built.modules)
    }
    last: Event | None = None
    for event in events:
        if isinstance(event, ModuleMoved) and event.module in family:
            return None
        if isinstance(event, StateLoaded) and event.into in family:
            if event.assign is not False and event.api == "load_state_dict":
                return None
            last = last if event.of_itself else event
        elif isinstance(event, OptimizerStepped) and event.optimizer in optimizers:
            last = event
        elif isinstance(event, WeightsSet) and not family.isdisjoint(event.modules):
            if event.rebound:
                return None
            last = event if event.in_place else last
    return last


@dataclass(frozen=True)
class Shared:
    """Weights that a model gets again and again, as if they were copies.

    Attributes:
        load: the load that makes two models share their weights.
        model: the model whose weights the other one gets.
        changed: what changes the weights of both.
        used: a call of the other one after that.
    """

    load: StateLoaded
    model: str
    changed: OptimizerStepped
    used: Called


def shared_weights(trace: Trace) -> Iterator[Shared]:
    """The loads by which one model follows another one, although it is to have older weights.

    A program that wants to share weights loads them once. One that loads them in a loop, and uses
    the model between a step and the next load, takes them for a copy.
    """
    for load in trace.of(StateLoaded):
        if load.shares is None or not load.in_loop or any(one.of_tensor for one in load.guards):
            continue
        if not only_fsdp2(trace, load.shares, load) or not _is_sharded_again(trace, load):
            continue
        found = _used_after_step(trace, load, load.shares)
        if found is not None:
            yield Shared(load, load.shares, *found)


def _is_sharded_again(trace: Trace, load: StateLoaded) -> bool:
    """Whether the model certainly gathers parameters in each of its calls.

    Without a backward pass, what the root has itself stays gathered with its old values.
    """
    below = set(trace.submodules(load.into)) - {load.into}
    if any(one.api == "set_reshard_after_forward" for one in trace.of(SyncSwitched)):
        return False
    groups = Groups(trace)
    return any(
        module in below
        and not event.group
        and "**" not in event.options
        and event.options.get("reshard_after_forward") in (None, True)
        and groups.holds_parameters(module)
        for event in trace.before(load, Sharded)
        for module in sharded_by(event)
    )


def _used_after_step(
    trace: Trace, load: StateLoaded, model: str
) -> tuple[OptimizerStepped, Called] | None:
    """A step of a model, and a call of the other one that shares its weights, before new ones."""
    family, other = trace.family(model), trace.family(load.into)
    optimizers = {
        one.optimizer for one in trace.of(OptimizerBuilt) if not family.isdisjoint(one.modules)
    }
    changed: OptimizerStepped | None = None
    for event in trace.events[load.index + 1 :]:
        if isinstance(event, OptimizerStepped) and event.optimizer in optimizers:
            changed = event
        elif isinstance(event, Called) and event.module == load.into and changed is not None:
            return changed, event
        elif isinstance(event, StateLoaded) and event.into in family | other:
            return None
        elif isinstance(event, ModuleMoved) and event.module in family | other:
            return None
        elif isinstance(event, WeightsSet) and (
            not event.modules or not (family | other).isdisjoint(event.modules)
        ):
            return None
    return None
