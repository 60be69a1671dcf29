"""Whether a program trains in a data-parallel way only."""

from __future__ import annotations

from fsdplint.trace import (
    Collective,
    Event,
    Guard,
    GuardKind,
    MeshBuilt,
    ProcessGroupInit,
    Sharded,
    TensorParallel,
    Trace,
    Wrapped,
)
from fsdplint.trace.queries.meshes import covers
from fsdplint.trace.queries.split_dimensions import OTHER_DIMENSIONS


def only_data_parallel(trace: Trace) -> bool:
    """Whether a model is sharded over all ranks, with no other kind of parallelism."""
    if not trace.shardings():
        return False
    if has_one_rank(trace):
        return False
    if any("process_group" in event.options for event in trace.of(Wrapped)):
        return False
    if any(event.api == "new_group" for event in trace.of(Collective)):
        return False
    if any(True for _ in trace.of(TensorParallel)):
        return False
    return all(is_of_data(trace, mesh) for mesh in trace.of(MeshBuilt))


def is_of_data(trace: Trace, mesh: MeshBuilt) -> bool:
    """Whether all ranks of a mesh certainly get data of their own.

    FSDP averages the gradients over each dimension that a sharding gets, also over replicas.
    """
    if any(map(OTHER_DIMENSIONS.search, mesh.dim_names)):
        return False
    if len(mesh.shape) == 1:
        return True
    shards: list[Sharded | Wrapped] = [*trace.of(Sharded), *trace.of(Wrapped)]
    return len(mesh.shape) == 2 and bool(shards) and all(covers(one, mesh) for one in shards)


def has_one_rank(trace: Trace) -> bool:
    """Whether a process group has one rank, as in a script that converts a checkpoint."""
    return any(event.options.get("world_size") == 1 for event in trace.of(ProcessGroupInit))


def settings(event: Event) -> set[Guard]:
    """The settings of the program that lead to an event."""
    return {guard for guard in event.guards if guard.kind is GuardKind.CONFIG}
