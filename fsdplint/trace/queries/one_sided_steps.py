"""The steps of optimizers over sharded parameters, and of their schedulers, that not every rank
makes in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fsdplint.trace import (
    Collective,
    Event,
    GradientsZeroed,
    GroupOptionSet,
    Guard,
    GuardKind,
    OptimizerBuilt,
    OptimizerStepped,
    PartialRead,
    Ranks,
    ScalerStepped,
    SchedulerStepped,
    Sharded,
    Trace,
    Wrapped,
)
from fsdplint.trace.queries.common import optimizer_of
from fsdplint.trace.queries.own_data import own_data_tests, undecided_collectives
from fsdplint.trace.queries.rank_divergence import unmatched_collectives
from fsdplint.trace.queries.rank_matching import follows_messages
from fsdplint.trace.queries.wrappers import uses_original_parameters

_Step = OptimizerStepped | ScalerStepped | SchedulerStepped | GroupOptionSet | GradientsZeroed


def steps_of_some_ranks(trace: Trace) -> Iterator[OptimizerStepped | ScalerStepped]:
    """The steps that some rank leaves out, and with which no collective is left out, too.

    Of a scaler that steps an optimizer, it is the call of the scaler: whether it skips the step is
    its own decision. A run that broke says nothing about its last steps.
    """
    scaled = {event.optimizer for event in trace.of(ScalerStepped)}
    made: list[OptimizerStepped | ScalerStepped] = [
        *(event for event in trace.of(OptimizerStepped) if event.optimizer not in scaled),
        *trace.of(ScalerStepped),
    ]
    steps = [event for event in made if over_shards(trace, event.optimizer, event)]
    if not any(event.ranks.partial or own_data_tests(event) for event in steps):
        return
    if trace.ends and any(read.partial for read in trace.of(PartialRead)):
        return  # a number of its own shard may have decided: FSDP405 is about that
    waiting = [*unmatched_collectives(trace), *undecided_collectives(trace)]
    if any(end != "ok" for end in trace.ends.values()) or (trace.ends and waiting):
        return
    hangs = {guard.site for event in waiting for guard in event.guards}
    for event in steps:
        guard = deciding_test(event)
        if guard is not None and guard.site in hangs:
            continue
        if _leaves_ranks_out(trace, event) if trace.ends else _is_one_sided(trace, event):
            yield event


def schedules_of_some_ranks(trace: Trace) -> Iterator[SchedulerStepped | GroupOptionSet]:
    """The steps of schedulers, and the changes of options by the program, after which the ranks may
    have different learning rates.

    Some rank leaves the step out, or each rank decides by a number of its own.
    """
    if any(end != "ok" for end in trace.ends.values()):
        return
    made: list[SchedulerStepped | GroupOptionSet] = [
        *trace.of(SchedulerStepped),
        *trace.of(GroupOptionSet),
    ]
    steps = [event for event in made if over_shards(trace, event.optimizer, event)]
    hangs = {guard.site for event in unmatched_collectives(trace) for guard in event.guards}
    for event in steps:
        guard = deciding_test(event)
        if event.differs if isinstance(event, GroupOptionSet) else event.metric_differs:
            yield event
        elif guard is not None and guard.site in hangs:
            continue
        elif _leaves_ranks_out(trace, event) if trace.ends else _is_one_sided(trace, event):
            yield event


def zeroed_by_some_ranks(trace: Trace) -> Iterator[GradientsZeroed]:
    """The places where some ranks alone set gradients to zero that all ranks step with."""
    if any(end != "ok" for end in trace.ends.values()):
        return
    stepped = {one.optimizer for one in trace.of(OptimizerStepped) if not one.ranks.partial}
    waiting = [*unmatched_collectives(trace), *undecided_collectives(trace)]
    hangs = {guard.site for event in waiting for guard in event.guards}
    for event in trace.of(GradientsZeroed):
        if event.optimizer not in stepped or not over_shards(trace, event.optimizer, event):
            continue
        guard = deciding_test(event)
        if guard is not None and guard.site in hangs:
            continue
        if _leaves_ranks_out(trace, event) if trace.ends else _is_one_sided(trace, event):
            yield event


def deciding_test(event: Event) -> Guard | None:
    """The innermost test that keeps some ranks from an event; None if all ranks come in turn."""
    for guard in reversed(event.guards):
        if guard.own_data is not None or (guard.kind is GuardKind.RANK and guard.ranks.partial):
            return None if guard.in_turn else guard
    return None


def over_shards(trace: Trace, optimizer: str, event: Event) -> bool:
    """Whether all ranks have together sharded parameters of an optimizer before an event."""
    built = optimizer_of(trace, optimizer)
    if built is None or built.ranks.partial:
        return False
    parts = {part for module in built.modules for part in trace.submodules(module)}
    shards = [
        shard
        for shard in trace.before(event, Sharded, Wrapped)
        if isinstance(shard, Sharded | Wrapped)
        and (shard.module in parts or _holds(trace, shard, built))
    ]
    return bool(shards) and not any(shard.ranks.partial for shard in shards)


def _holds(trace: Trace, shard: Sharded | Wrapped, built: OptimizerBuilt) -> bool:
    """Whether a sharding of something larger certainly has the parameters of an optimizer."""
    if not built.modules or any(name.startswith(("ignored_", "**")) for name in shard.options):
        return False
    kept = isinstance(shard, Wrapped) and uses_original_parameters(shard)
    if built.index < shard.index and not kept:
        return False  # the optimizer has the parameters from before
    return all(trace.contains(shard.module, module) for module in built.modules)


def _leaves_ranks_out(trace: Trace, event: _Step) -> bool:
    """Whether some rank of a recorded run did not make this step nor another one instead."""
    counts: Counter[int] = Counter(dict.fromkeys(trace.ends, 0))
    for other in trace.of(type(event)):
        if other.optimizer == event.optimizer:
            counts.update(other.took_part)
    return event.ranks.partial and len(set(counts.values())) > 1


def _is_one_sided(trace: Trace, event: _Step) -> bool:
    """Whether only one side of a test makes this step, and the other side makes none."""
    guard = deciding_test(event)
    if guard is None or guard.asserted or event.ranks is Ranks.SOME:
        return False
    if follows_messages(event, trace.of(Collective)):
        return False
    for other in trace.of(type(event)):
        if other.optimizer != event.optimizer:
            continue
        if event.ranks.partial and other.ranks.partial and other.ranks is not event.ranks:
            return False
        tests = own_data_tests(other)
        if any(one.site == guard.site and one.holds != guard.holds for one in tests):
            return False
    return True
