"""Hybrid sharding over meshes whose shard groups have one rank.

FSDP1 takes such a group for all ranks: it switches to NO_SHARD and reduces no gradients, so each rank
trains by itself (seen with torch 2.13). FSDP2 averages gradients over the replicas.
"""

from __future__ import annotations

from fsdplint.migration.constructor.strategy import HYBRID
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite
from fsdplint.trace import MeshBuilt, Trace, Wrapped
from fsdplint.trace.queries.wrappers import strategy

CERTAIN = "gradients are averaged over all ranks (FSDP1: each rank trains by itself)"
UNCERTAIN = (
    "if a shard group has one rank, gradients are averaged over the replicas (FSDP1: each rank trains "
    "by itself)"
)
DETAIL = (
    "With hybrid sharding over a shard group of one rank, FSDP1 switches to NO_SHARD and does not reduce "
    "gradients. FSDP2 trains as the mesh says."
)


def note(migration: Migration) -> None:
    """Note the calls that wrap a model over such groups, or over groups of unknown size."""
    for trace in migration.program.traces:
        for event in trace.of(Wrapped):
            site, size = event.site, _shard_size(trace, event)
            if isinstance(site, NodeSite) and strategy(event) in HYBRID and size in (1, None):
                migration.note(
                    CERTAIN if size == 1 else UNCERTAIN,
                    site.source,
                    site.node,
                    detail=DETAIL,
                    unsafe=size == 1,
                )


def _shard_size(trace: Trace, event: Wrapped) -> int | None:
    """The size of the shard groups of the mesh; None if unknown, 0 if there is no mesh of two dimensions."""
    meshes = [mesh for mesh in trace.before(event, MeshBuilt) if mesh.mesh == event.mesh]
    if event.mesh is None or len(meshes) != 1 or len(meshes[0].shape) != 2:
        return 0
    return meshes[0].shape[-1]
