"""FSDP130: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import MeshBuilt, Site, Trace, Wrapped
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.wrappers import strategy


class HybridShardOfOne(Rule):
    """FSDP1's hybrid sharding gets a mesh with one rank in the sharding dimension.

    ## What it does
    Finds `FullyShardedDataParallel(..., device_mesh=mesh)` with the strategy `HYBRID_SHARD` or
    `_HYBRID_SHARD_ZERO2` if the mesh was built with the shape `(n, 1)`.

    ## Why is this bad?
    FSDP1 finds one rank in the sharding group and switches to `NO_SHARD` with a warning ("FSDP is
    switching to use `NO_SHARD` ... since the world size is 1"). It then ignores the other dimension:
    no gradient is reduced over the replicas, and every rank trains its own model. There is no error:
    after one step, the parameters of two ranks differed.

    ## Since
    torch 2.2, where FSDP1 accepts a mesh. FSDP2 handles such a mesh correctly.

    ## References
    - pytorch/pytorch#154888.
    """

    code = "FSDP130"
    name = "hybrid-shard-of-one"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterable[Finding]:
        meshes = {event.mesh: event for event in trace.of(MeshBuilt)}
        seen: set[Site] = set()
        for event in trace.of(Wrapped):
            mesh = meshes.get(event.mesh or "")
            if mesh is None or event.site in seen or "HYBRID" not in (strategy(event) or ""):
                continue
            if len(mesh.shape) == 2 and mesh.shape[1] == 1 and mesh.shape[0] != 1:
                seen.add(event.site)
                yield self.finding(
                    event,
                    f"FSDP1 does not reduce the gradients of `{class_name(trace, event.inner)}` over "
                    f"the replicas of a mesh that has one rank per replica",
                    help="Use `DistributedDataParallel` (or `ShardingStrategy.NO_SHARD` without a mesh), "
                    "or `fully_shard`, which supports such a mesh.",
                    because=[(mesh, "mesh built here")],
                )
