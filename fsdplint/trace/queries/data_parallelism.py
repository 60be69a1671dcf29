"""Whether a program trains in a data-parallel way only.

FSDP averages the gradients over each dimension of a mesh that a sharding gets, also over replicas,
so that the ranks along it should get data of their own. The name of a dimension may say so, too, or
that its ranks work on the same data.
"""

from __future__ import annotations

import re
from collections.abc import Container

from fsdplint.trace import (
    Collective,
    Event,
    Guard,
    GuardKind,
    MeshBuilt,
    Prepared,
    ProcessGroupInit,
    Sharded,
    TensorParallel,
    Trace,
    Wrapped,
)
from fsdplint.trace.queries.meshes import covers

# Names of dimensions whose ranks work on the same data, and of those whose ranks do not.
_SAME_DATA = re.compile(
    r"(?<![a-z])(tp|cp|sp|pp|ep)(?![a-z])|tensor|context|sequence|pipe|expert|model", re.IGNORECASE
)
_OWN_DATA = re.compile(r"replicate|shard|dp|data|fsdp|ddp|hsdp|node|world", re.IGNORECASE)


def may_share_data(dimension: str) -> bool:
    """Whether the name of a dimension says that its ranks work on the same data."""
    return _SAME_DATA.search(dimension) is not None


def only_data_parallel(trace: Trace) -> bool:
    """Whether a model is sharded over all ranks, with no other kind of parallelism."""
    if not trace.shardings() and not any(True for _ in trace.of(Prepared)):
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
    """Whether all ranks of a mesh certainly get data of their own."""
    if any(map(may_share_data, mesh.dim_names)):
        return False
    if len(mesh.shape) == 1:
        return True
    shards: list[Sharded | Wrapped] = [*trace.of(Sharded), *trace.of(Wrapped)]
    return len(mesh.shape) == 2 and bool(shards) and all(covers(one, mesh) for one in shards)


def other_parallelism(trace: Trace, known: Container[str] = ()) -> bool:
    """Whether ranks may belong together in other ways, such as tensor parallel ones.

    known: the dimensions of which it is known how their ranks belong together.
    """
    return any(
        len(mesh.shape) > 2
        or not all(name in known or _is_averaged(trace, mesh, name) for name in mesh.dim_names)
        for mesh in trace.of(MeshBuilt)
    )


def _is_averaged(trace: Trace, mesh: MeshBuilt, dimension: str) -> bool:
    """Whether FSDP averages over a dimension of a mesh, as far as its name or a sharding says."""
    if _OWN_DATA.match(dimension):
        return True
    shards = (one for one in trace.of(Sharded) if one.whole_mesh == mesh.mesh)
    return not may_share_data(dimension) and any(dimension in one.dims for one in shards)


def has_one_rank(trace: Trace) -> bool:
    """Whether a process group has one rank, as in a script that converts a checkpoint."""
    return any(event.options.get("world_size") == 1 for event in trace.of(ProcessGroupInit))


def begins_process_group(trace: Trace) -> bool:
    """Whether a program, or its framework, begins a process group, perhaps with a device mesh."""
    if any(trace.of(ProcessGroupInit)) or any(trace.of(Prepared)):
        return True
    return any(set(mesh.shape) != {1} for mesh in trace.of(MeshBuilt))


def settings(event: Event) -> set[Guard]:
    """The settings of the program that lead to an event."""
    return {guard for guard in event.guards if guard.kind is GuardKind.CONFIG}
