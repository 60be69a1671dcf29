"""FSDP124: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import MeshBuilt, Sharded, Trace
from fsdplint.trace.queries.meshes import mesh_of

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class SwappedHsdpMesh(Rule):
    """A mesh names its first dimension shard, but FSDP2 replicates over the first one.

    ## What it does
    Finds `fully_shard(model, mesh=mesh)` where `mesh` comes from `init_device_mesh` with two dimensions,
    the first one with "shard" or "fsdp" in its name and the second one with "replicate" or "ddp".

    Also finds a part of a mesh with two dimensions, of which only the first has "shard" or "fsdp" in its
    name: `mesh["dp_shard", "cp"]` for a model that is to be sharded over both.

    A part of one dimension (`mesh["shard"]`) is fine, and so is a call with `dp_mesh_dims`.

    ## Why is this bad?
    FSDP2 goes by position and not by name: it replicates over dimension 0 and shards over dimension 1.
    With a mesh of shape (2, 1) and the names ("shard", "replicate"), each of two ranks held all 32
    elements of a weight instead of 16. There is no error, and the training is correct, but sharding
    saves no memory.

    ## Fix safety
    Unsafe: shape and names are swapped where the mesh is built. The groups then have other ranks, and
    code that reads the mesh by position reads the other dimension. There is no fix if the call does not
    contain shape and names as literals.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`: a 2D mesh replicates over dimension 0 and shards
      over dimension 1.
    - pytorch/pytorch#161776, NVIDIA-NeMo/Automodel#2768.
    """

    code = "FSDP124"
    name = "swapped-hsdp-mesh"
    severity = Severity.WARNING
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Sharded):
            mesh = mesh_of(trace, event)
            swapped = _has_swapped_names(mesh) if mesh is not None else _shards_first(event)
            if not swapped or event.site in seen:
                continue
            if "dp_mesh_dims" in event.options or "**" in event.options:
                continue
            seen.add(event.site)
            one, other = mesh.dim_names if mesh is not None else event.dims
            yield self.finding(
                event,
                f"`fully_shard` replicates over the first dimension of the mesh, which is named "
                f"`{one}`, and shards over the second, `{other}`",
                help="Build the mesh with the replicas first: (replicas, shards)."
                if mesh is not None
                else f"Join the dimensions, `mesh[{one!r}, {other!r}]._flatten()`, to shard over both.",
                because=[(mesh, "mesh built here")] if mesh is not None else (),
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.mesh import swap_dimensions

        rewrite = Rewrite()
        if len(finding.events) < 2:
            return None
        if not swap_dimensions(rewrite, finding.events[1].site):
            return None
        return rewrite.fix("Put the replicas first in the mesh", Safety.UNSAFE)


def _has_swapped_names(mesh: MeshBuilt) -> bool:
    names = [name.lower() for name in mesh.dim_names]
    if len(names) != 2 or len(mesh.shape) != 2:
        return False
    return [_means(name) for name in names] == [{"shards"}, {"replicas"}]


def _shards_first(event: Sharded) -> bool:
    """Whether the mesh is a part of two dimensions of which only the first is named as shards."""
    if len(event.dims) != 2:
        return False
    one, other = ("shards" in _means(name.lower()) for name in event.dims)
    return one and not other


def _means(name: str) -> set[str]:
    """What the name of a dimension says of it: "shards", "replicas", both or nothing."""
    words = {"shard": "shards", "fsdp": "shards", "repl": "replicas", "ddp": "replicas"}
    return {meaning for word, meaning in words.items() if word in name}
