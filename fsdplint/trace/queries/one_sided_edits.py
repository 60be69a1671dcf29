"""Changes of sharded parameters, and of copies of them, that not every rank makes."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.trace import (
    Called,
    Collective,
    Escaped,
    Event,
    Gathered,
    Ranks,
    ShardCopySet,
    Sharded,
    StateLoaded,
    Trace,
    WeightsDrawn,
    WeightsSet,
)
from fsdplint.trace.groups import Groups, sharded_by
from fsdplint.trace.queries.one_sided_steps import deciding_test

_Edit = WeightsSet | WeightsDrawn | ShardCopySet


def edits_of_some_ranks(trace: Trace) -> Iterator[tuple[_Edit, str]]:
    """The changes of sharded parameters, and of copies of them, that some rank leaves out.

    Each comes with a unit of the parameters. Each rank changes its own parts, so that the others
    stay as they were.
    """
    if any(end != "ok" for end in trace.ends.values()):
        return
    groups = Groups(trace)
    for event in trace.of(WeightsSet, WeightsDrawn, ShardCopySet):
        if not isinstance(event, _Edit) or not _may_be_one_sided(event):
            continue
        unit = _owner(groups, event) if isinstance(event, ShardCopySet) else _unit(groups, event)
        if unit is None or not _is_one_sided(trace, event):
            continue
        if not _is_replaced(trace, event):
            yield event, unit


def _may_be_one_sided(event: _Edit) -> bool:
    if not event.ranks.partial or event.callbacks:
        return False
    if isinstance(event, WeightsSet) and (event.same_values or event.summoned):
        return False
    if not isinstance(event, ShardCopySet) and not _is_certain(event):
        return False
    return not any(guard.of_tensor or guard.asserted for guard in event.guards)


def _is_certain(event: WeightsSet | WeightsDrawn) -> bool:
    """Whether it certainly changes the parameters themselves, and which ones is known."""
    return bool(event.extent) and not (isinstance(event, WeightsSet) and not event.in_place)


def _owner(groups: Groups, event: ShardCopySet) -> str | None:
    """A unit of the parameters of copies."""
    return next((groups.owner(one, event) or one for one in event.modules), None)


def _unit(groups: Groups, event: WeightsSet | WeightsDrawn) -> str | None:
    """The module that all ranks have sharded, with all of the parameters; None if unknown."""
    trace = groups.trace
    owners = [groups.owner(module, event) for module in event.modules]
    if event.extent == "all":  # which has parameters that are sharded if the module itself is
        owners = [module if module in owners else None for module in event.modules]
    if not owners or None in owners:
        return None
    for shard in trace.before(event, Sharded):
        if not set(owners).isdisjoint(sharded_by(shard)):
            ignores = {"ignored_params", "**"} & set(shard.options)
            if shard.ranks.partial or ignores or shard.callbacks:
                return None
    gathered = [one for one in trace.before(event, Gathered) if one.module in owners]
    return None if gathered and gathered[-1].gathered else owners[0]


def _kinds(event: _Edit) -> tuple[type[_Edit], ...]:
    """The kinds of events by which other ranks may change the same tensors."""
    return (ShardCopySet,) if isinstance(event, ShardCopySet) else (WeightsSet, WeightsDrawn)


def _is_one_sided(trace: Trace, event: _Edit) -> bool:
    """Whether the other ranks certainly make no such change."""
    if not trace.ends and (deciding_test(event) is None or event.ranks is Ranks.SOME):
        return False
    family = {one for module in event.modules for one in trace.family(module)}
    return not any(
        other.ranks.partial
        and (other.ranks is not event.ranks or other.took_part != event.took_part)
        and (not other.modules or not family.isdisjoint(other.modules))
        for other in trace.of(*_kinds(event))
    )


def _is_replaced(trace: Trace, event: _Edit) -> bool:
    """Whether the other ranks may get the values later, or before the model is called again."""
    family = {one for module in event.modules for one in trace.family(module)}
    for other in trace.events[event.index + 1 :]:
        called = isinstance(other, Called) and other.module in family
        if called and not isinstance(event, ShardCopySet):
            return False
        if _gives_values(other, family):
            return True
    return False


def _gives_values(event: Event, family: set[str]) -> bool:
    if isinstance(event, Collective):
        return "broadcast" in event.api or "scatter" in event.api
    if isinstance(event, WeightsSet | WeightsDrawn):
        return not event.ranks.partial and not family.isdisjoint(event.modules)
    if isinstance(event, Escaped):  # code out of sight may set them
        return event.module in family
    return isinstance(event, StateLoaded) and event.into in family
