"""Weights that one rank alone has when its model is sharded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    BackwardRun,
    Collective,
    Event,
    Guard,
    GuardKind,
    ModuleBuilt,
    Ranks,
    Sharded,
    StateLoaded,
    Trace,
    WeightsDrawn,
    WeightsSet,
    Wrapped,
)
from fsdplint.trace.queries.common import side
from fsdplint.trace.queries.data_parallelism import other_parallelism
from fsdplint.trace.queries.initial_weights import (
    may_synchronize,
    replaces_weights,
    sends_tensors,
    sharded_roots,
    were_equal,
)

_CHANGES = (WeightsSet, WeightsDrawn)


@dataclass(frozen=True)
class OneRankWeights:
    """A model whose weights one rank alone has read or set before the model is sharded.

    source: where that rank gets them.
    sharded: where the whole is sharded.
    """

    module: str
    source: Event
    sharded: Sharded | Wrapped


def weights_of_one_rank(trace: Trace) -> Iterator[OneRankWeights]:
    """The sharded models whose weights only one rank has, if no code sends them to the others."""
    if not trace.complete or other_parallelism(trace):
        return
    for module, first in sharded_roots(trace):
        sharded = _on_all_ranks(trace, first)
        family = trace.family(module)
        if sharded is None or trace.any_escaped(family, trace.first_backward):
            continue
        source = _source(trace, family, sharded)
        if source is None or were_equal(trace, family):
            continue
        if not _reaches_others(trace, family, source, sharded):
            yield OneRankWeights(module, source, sharded)


def _on_all_ranks(trace: Trace, sharded: Sharded | Wrapped) -> Sharded | Wrapped | None:
    """The event after which all ranks have sharded a model, perhaps each one of its own; None if
    some do not."""
    if not sharded.ranks.partial:
        return sharded
    same = [one for one in trace.of(type(sharded)) if one.site == sharded.site]
    return same[-1] if {Ranks.ONE, Ranks.OTHERS} <= {one.ranks for one in same} else None


def _source(trace: Trace, family: set[str], sharded: Sharded | Wrapped) -> Event | None:
    """The last event before the sharding that gives one rank the weights; None if others may also
    get them."""
    found: Event | None = None
    for event in trace.before(sharded, StateLoaded, WeightsSet, WeightsDrawn, ModuleBuilt):
        if isinstance(event, WeightsSet) and not event.modules:
            return None  # of any module
        on_others = side(event) in (Ranks.OTHERS, Ranks.SOME)
        if not on_others and not _gives_weights(event, family):
            continue
        if on_others and isinstance(event, ModuleBuilt) and event.random_weights is not False:
            continue
        if (
            side(event) is Ranks.ALL
            and isinstance(event, _CHANGES)
            and _is_apart(trace, found, event)
        ):
            continue
        if side(event) is not Ranks.ONE or event.callbacks or _varies(event):
            return None
        if not isinstance(event, ModuleBuilt) or _others_start_anew(trace, event):
            found = event
    return found


def _is_apart(trace: Trace, found: Event | None, event: WeightsSet | WeightsDrawn) -> bool:
    """Whether a change on all ranks leaves what one rank alone has set before, if it has."""
    if found is None:
        return True
    changed = trace.submodules(*event.modules)
    return isinstance(found, _CHANGES) and set(changed).isdisjoint(found.modules)


def _gives_weights(event: Event, family: set[str]) -> bool:
    """Whether an event gives a module of a family other weights than its constructor did."""
    if isinstance(event, StateLoaded):
        return event.into in family
    if isinstance(event, ModuleBuilt):
        return event.module in family and event.random_weights is False
    return _may_set_weights(event, family)


def _may_set_weights(event: Event, family: set[str]) -> bool:
    if not isinstance(event, _CHANGES):
        return False
    if isinstance(event, WeightsSet) and event.same_values:
        return False
    return not event.modules or not family.isdisjoint(event.modules)


def _varies(event: Event) -> bool:
    """Whether an event may happen on another rank at another time: `if rank == turn`."""
    known = any(guard.rank is not None for guard in event.guards if guard.kind is GuardKind.RANK)
    in_turn = event.in_loop and not known
    return in_turn or any(guard.kind is GuardKind.VARYING for guard in event.guards)


def _others_start_anew(trace: Trace, built: ModuleBuilt) -> bool:
    """Whether the other ranks build a model of the same class with random weights instead."""
    tests = {_negated_key(guard) for guard in built.guards if guard.kind is GuardKind.RANK}
    return any(
        (other.random_weights or other.on_meta)
        and not tests.isdisjoint(_test(guard) for guard in other.guards)
        and _class_of(trace, other) == _class_of(trace, built)
        for other in trace.of(ModuleBuilt)
        if side(other) is Ranks.OTHERS
    )


def _test(guard: Guard) -> tuple[str, bool]:
    return guard.text, guard.holds


def _negated_key(guard: Guard) -> tuple[str, bool]:
    return guard.text, not guard.holds


def _class_of(trace: Trace, built: ModuleBuilt) -> str:
    return trace.modules[built.module].class_name


def _inner_wrappers(trace: Trace, sharded: Sharded | Wrapped) -> Iterator[Wrapped]:
    """The wrappers that another one wraps again."""
    inside = trace.unwrap(sharded.module)
    for wrapper in trace.before(sharded, Wrapped):
        if trace.unwrap(wrapper.module) == inside:
            yield wrapper


def _reaches_others(
    trace: Trace, family: set[str], source: Event, sharded: Sharded | Wrapped
) -> bool:
    """Whether the other ranks may get the weights between their source and the first backward."""
    if any(may_synchronize(one) for one in (sharded, *_inner_wrappers(trace, sharded))):
        return True
    changed = source.modules if isinstance(source, _CHANGES) else family
    for event in trace.events[source.index + 1 :]:
        if isinstance(event, BackwardRun):
            return False
        if replaces_weights(event, family) or _may_set_weights(event, set(changed)):
            return True
        if isinstance(event, Collective) and sends_tensors(event):
            return True
    return False
