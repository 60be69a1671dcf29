"""FSDP models that are only replicated, so that no parameters are gathered."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.trace import (
    Called,
    Clipped,
    Event,
    Gathered,
    Sharded,
    StateLoaded,
    StateTaken,
    Trace,
    Wrapped,
)
from fsdplint.trace.queries.meshes import sizes_of
from fsdplint.trace.queries.wrappers import strategy


def gathers_nothing(trace: Trace, event: Event, modules: Iterable[str]) -> bool:
    """Whether the event gathers nothing, since each rank has all parameters of the modules.

    FSDP2 over a mesh whose last dimension has one rank gathers over that rank alone: forwards,
    norms and states communicate nothing then. FSDP1 with NO_SHARD communicates in optimizer states,
    but not in those of the model (both as seen with torch 2.13). To load a state FSDP2 scatters
    over the whole mesh, FSDP1 with NO_SHARD communicates at most in states of optimizers over flat
    parameters.
    """
    if not isinstance(event, Called | Clipped | Gathered | StateLoaded | StateTaken):
        return False
    inside = {part for module in modules for part in trace.submodules(module)}
    shards = [one for one in trace.shards_before(event) if one.module in inside]
    loads = isinstance(event, StateLoaded)
    nothing = loads or isinstance(event, StateTaken) and event.of in trace.modules
    return bool(shards) and all(
        nothing and strategy(shard) == "NO_SHARD"
        if isinstance(shard, Wrapped)
        else not loads and _replicates(trace, shard)
        for shard in shards
    )


def _replicates(trace: Trace, shard: Sharded) -> bool:
    """Whether the last dimension of the mesh, over which FSDP2 shards, certainly has one rank."""
    sizes = sizes_of(trace, shard)
    return len(sizes) > 1 and sizes[-1] == 1
