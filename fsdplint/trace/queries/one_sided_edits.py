"""Changes in place of sharded parameters that not every rank makes."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.trace import (
    Called,
    Collective,
    Event,
    Gathered,
    Ranks,
    Sharded,
    StateLoaded,
    Trace,
    WeightsSet,
)
from fsdplint.trace.groups import Groups, sharded_by
from fsdplint.trace.queries.one_sided_steps import deciding_test


def edits_of_some_ranks(trace: Trace) -> Iterator[tuple[WeightsSet, str]]:
    """The changes of parameters of `fully_shard` that some rank leaves out, each with a module.

    Each rank changes its own parts, so that the others stay as they were.
    """
    if any(end != "ok" for end in trace.ends.values()):
        return
    groups = Groups(trace)
    for event in trace.of(WeightsSet):
        if not event.ranks.partial or event.same_values or event.summoned or event.callbacks:
            continue
        if not event.in_place or not event.extent:
            continue
        if any(guard.of_tensor or guard.asserted for guard in event.guards):
            continue
        unit = _unit(groups, event)
        if unit is None or not _is_one_sided(trace, event):
            continue
        if not _is_replaced(trace, event):
            yield event, unit


def _unit(groups: Groups, event: WeightsSet) -> str | None:
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


def _is_one_sided(trace: Trace, event: WeightsSet) -> bool:
    """Whether the other ranks certainly make no such change."""
    if not trace.ends and (deciding_test(event) is None or event.ranks is Ranks.SOME):
        return False
    family = {one for module in event.modules for one in trace.family(module)}
    return not any(
        other.ranks.partial
        and (other.ranks is not event.ranks or other.took_part != event.took_part)
        and (not other.modules or not family.isdisjoint(other.modules))
        for other in trace.of(WeightsSet)
    )


def _is_replaced(trace: Trace, event: WeightsSet) -> bool:
    """Whether the other ranks may get the values before the model is called again."""
    family = {one for module in event.modules for one in trace.family(module)}
    for other in trace.events[event.index + 1 :]:
        if isinstance(other, Called) and other.module in family:
            return False
        if _gives_values(other, family):
            return True
    return False


def _gives_values(event: Event, family: set[str]) -> bool:
    if isinstance(event, Collective):
        return "broadcast" in event.api or "scatter" in event.api
    if isinstance(event, WeightsSet):
        return not event.ranks.partial and not family.isdisjoint(event.modules)
    return isinstance(event, StateLoaded) and event.into in family
