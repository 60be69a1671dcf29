"""The states of optimizers over sharded parameters, and of their schedulers, that only some ranks
load from a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fsdplint.trace import (
    Collective,
    HelperStateLoaded,
    OptimizerStepped,
    Ranks,
    SchedulerBuilt,
    StateLoaded,
    Trace,
)
from fsdplint.trace.queries.one_sided_steps import deciding_test, over_shards
from fsdplint.trace.queries.rank_matching import follows_messages

_Load = HelperStateLoaded | StateLoaded
_OWN = "load_state_dict"  # the method of an optimizer: it communicates with no other rank


def loads_of_some_ranks(trace: Trace) -> Iterator[tuple[_Load, str]]:
    """The loads that the other ranks neither make nor replace, each with the optimizer that steps.

    A run that broke says nothing about the loads that are missing.
    """
    if any(end != "ok" for end in trace.ends.values()):
        return
    owners = {built.scheduler: built.optimizer for built in trace.of(SchedulerBuilt)}
    loads: list[_Load] = [
        *trace.of(HelperStateLoaded),
        *(event for event in trace.of(StateLoaded) if event.api == _OWN),
    ]
    for event in loads:
        optimizer = owners.get(event.into) or event.into
        if not over_shards(trace, optimizer, event) or not _steps_after(trace, event, optimizer):
            continue
        if _is_missing_elsewhere(trace, event):
            yield event, optimizer


def _steps_after(trace: Trace, event: _Load, optimizer: str) -> bool:
    """Whether all ranks step the optimizer after a load."""
    return any(
        step.optimizer == optimizer and step.index > event.index and not step.ranks.partial
        for step in trace.of(OptimizerStepped)
    )


def _is_missing_elsewhere(trace: Trace, event: _Load) -> bool:
    kinds: type[_Load] = type(event)
    loads = [one for one in trace.of(kinds) if one.into == event.into]
    if trace.ends:
        counts: Counter[int] = Counter(dict.fromkeys(trace.ends, 0))
        for load in loads:
            counts.update(load.took_part)
        return event.ranks.partial and len(set(counts.values())) > 1
    if not event.ranks.partial or event.ranks is Ranks.SOME or deciding_test(event) is None:
        return False
    if follows_messages(event, trace.of(Collective)):
        return False
    return all(load.ranks is event.ranks for load in loads)
