"""FSDP123: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Sharded, Trace
from fsdplint.trace.queries.meshes import mesh_of

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class UnnamedHsdpMesh(Rule):
    """`fully_shard` gets a mesh of two dimensions without names.

    ## What it does
    Finds `fully_shard(model, mesh=mesh)` where `mesh` comes from `init_device_mesh` with two dimensions
    and without `mesh_dim_names`. A mesh of one dimension needs no names, and FSDP1
    accepts a mesh of two dimensions without names.

    ## Why is this bad?
    FSDP2 looks for its two groups by name: `AssertionError: Please init the 2D mesh for HSDP with
    mesh_dim_names specified`.

    ## Fix safety
    Safe: the mesh gets `mesh_dim_names=("replicate", "shard")`, the order in which FSDP2 reads the two dimensions.

    ## Since
    torch 2.6 for this error; names are needed since 2.4.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`: a 2D mesh replicates over dimension 0 and shards
      over dimension 1.
    - pytorch/pytorch#161776.
    """

    code = "FSDP123"
    name = "unnamed-hsdp-mesh"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Sharded):
            mesh = mesh_of(trace, event)
            if mesh is None or mesh.dim_names or len(mesh.shape) != 2 or event.site in seen:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "this mesh has two dimensions without names, but `fully_shard` needs their names",
                help='Build the mesh with `mesh_dim_names=("replicate", "shard")`.',
                because=[(mesh, "mesh built here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.mesh import name_dimensions

        rewrite = Rewrite()
        if not name_dimensions(rewrite, finding.events[1].site):
            return None
        return rewrite.fix("Name the dimensions of the mesh", Safety.SAFE)
