"""The process group, the collectives of only some ranks, and the data."""

from __future__ import annotations

from fsdplint.comparison.facts import Plan
from fsdplint.trace import (
    Collective,
    EpochSet,
    LoaderBuilt,
    ProcessGroupInit,
    SamplerBuilt,
    Seeded,
    Trace,
)
from fsdplint.trace.arguments import Argument, Arguments, Constant, OneOf, Opaque


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
    for seeded in trace.of(Seeded):
        if seeded.per_rank is not None:
            value = "for each rank" if seeded.per_rank else "for all ranks"
            plan.add("seed", value, "yes", seeded)
    for sampler in trace.of(SamplerBuilt):
        plan.add("DistributedSampler", "", "built", sampler)
    for loader in trace.of(LoaderBuilt):
        if loader.sampler is not None:
            plan.add("DataLoader with a DistributedSampler", "", "built", loader)
    for epoch in trace.of(EpochSet):
        plan.add("set_epoch of a sampler", "", "called", epoch)
    for collective in trace.of(Collective):
        if collective.ranks.partial:
            name = f"{collective.api} on {collective.ranks.value}"
            plan.add("collective", name, "yes", collective)
