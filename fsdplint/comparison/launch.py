"""The process group, the collectives of only some ranks, and the data."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.comparison.facts import Plan
from fsdplint.source.source import NodeSite
from fsdplint.trace import (
    Collective,
    EpochSet,
    GuardKind,
    LoaderBuilt,
    ProcessGroupInit,
    RunElsewhere,
    SamplerBuilt,
    Seeded,
    Sharded,
    Trace,
    Wrapped,
)
from fsdplint.trace.arguments import Argument, Arguments, Constant, OneOf, Opaque

_OF_NONE = re.compile(r"[\w.]+ is (not )?None")


def _backends(name: str) -> Argument:
    """`cpu:gloo,cuda:nccl` serves a program of either backend."""
    parts = [part.partition(":")[2] for part in name.split(",")]
    if len(parts) < 2:
        return Constant(name)
    return OneOf((*map(Constant, [*parts, name]),))


def add_launch(plan: Plan, trace: Trace) -> None:
    """Add the facts about the launch and the data."""
    for group in trace.of(ProcessGroupInit):
        given = trace.arguments.get(group.index, Arguments(complete=False))
        if group.backend is not None:
            plan.add("backend", "", _backends(group.backend), group)
        elif given.get("backend", "0") is None:
            plan.add("backend", "", "by default", group)
        else:
            plan.add("backend", "", Opaque(), group)
    spawn = _spawn_of_ranks(trace)
    for seeded in trace.of(Seeded):
        if seeded.per_rank is not None and seeded.index > spawn:
            value = "for each rank" if seeded.per_rank else "for all ranks"
            plan.add("seed", value, "yes", seeded)
    for sampler in trace.of(SamplerBuilt):
        plan.add("DistributedSampler", "", "built", sampler)
        if sampler.shuffle is not None:
            plan.add("DistributedSampler shuffle", "", sampler.shuffle, sampler)
        else:
            plan.gaps["DistributedSampler shuffle"] = "an argument of the sampler is unknown"
    for loader in trace.of(LoaderBuilt):
        if loader.sampler is not None:
            plan.add("DataLoader with a DistributedSampler", "", "built", loader)
    for epoch in trace.of(EpochSet):
        plan.add("set_epoch of a sampler", "", "called", epoch)
        if _is_literal(epoch):
            plan.add("epoch of a sampler", "", "always the same", epoch)
    for collective in trace.of(Collective):
        if collective.ranks.partial and not (
            _needs_members_only(collective) or _is_among_shards(trace, collective)
        ):
            name = f"{collective.api} on {collective.ranks.value}"
            plan.add("collective", name, "yes", collective)


def _needs_members_only(event: Collective) -> bool:
    """Whether a collective waits for the ranks of a group only, which alone come to it.

    Other ranks have None in place of the group.
    """
    if event.collective:
        return False
    tests = [guard.text for guard in event.guards if guard.kind is GuardKind.RANK]
    return event.api == "new_group" or any(_OF_NONE.fullmatch(text) for text in tests)


def _is_among_shards(trace: Trace, event: Collective) -> bool:
    """Whether a collective gathers parameters on all ranks that shard a model.

    The other ranks of the program never come to the sharding either.
    """
    ranks = {guard for guard in event.guards if guard.kind is GuardKind.RANK}
    shardings = list(trace.of(Sharded, Wrapped))
    return (
        event.api == "full_tensor"
        and bool(shardings)
        and all(ranks <= set(one.guards) for one in shardings)
    )


def _is_literal(event: EpochSet) -> bool:
    """Whether a call of `set_epoch` has a number as its argument."""
    node = event.site.node if isinstance(event.site, NodeSite) else None
    return isinstance(node, cst.Call) and any(
        isinstance(one.value, cst.Integer) for one in node.args
    )


def _spawn_of_ranks(trace: Trace) -> int:
    """The index of the event at which the ranks are spawned as new processes; -1 if none shows it.

    A new process does not have the random state of the one that spawns it.
    """
    begun: RunElsewhere | None = None
    for event in trace.of(RunElsewhere, Sharded, Wrapped):
        if not isinstance(event, RunElsewhere):
            return begun.index if begun is not None and _spawns(begun) else -1
        begun = event if begun is None else None
    return -1


def _spawns(event: RunElsewhere) -> bool:
    """Whether code calls a function `spawn`."""
    node = event.site.node if isinstance(event.site, NodeSite) else None
    function = node.func if isinstance(node, cst.Call) else None
    name = function.attr if isinstance(function, cst.Attribute) else function
    return isinstance(name, cst.Name) and name.value == "spawn"
