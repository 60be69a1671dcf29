"""FSDP140: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Sharded, TensorParallel, Trace
from fsdplint.trace.groups import Groups


class TensorParallelismOverShards(Rule):
    """Tensor parallelism and `fully_shard` do not fit each other.

    ## What it does
    Finds `parallelize_module` with a plan for layers that `fully_shard` has sharded before. Also finds
    `fully_shard` of a module with such layers over a dimension of the mesh that tensor parallelism uses,
    and without a mesh.

    Layers of the plan that are not sharded yet may be parallelized at any time, and a plan that only
    prepares inputs and outputs (`PrepareModuleInput`) touches no parameters.

    ## Why is this bad?
    Each parameter is one DTensor over both dimensions. `fully_shard` is able to add its dimension to the
    one of tensor parallelism, but not the other way round:

        ValueError: Cannot distribute a DTensor with device mesh DeviceMesh((dp=1), ...) to a different
        device mesh DeviceMesh((tp=2), ...).

    A dimension that is used twice fails where it has more than one rank, and without a mesh, the
    dimensions belong to different meshes:

        RuntimeError: Cannot concatenate overlapping meshes
        TypeError: Invariant encountered: value was None when it should not be

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html (2-D parallelism: tensor
      parallelism first, then FSDP over the other dimension)
    """

    code = "FSDP140"
    name = "tensor-parallelism-over-shards"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        earlier: list[TensorParallel] = []
        seen = set()
        for event in trace:
            found = None
            if isinstance(event, TensorParallel):
                earlier.append(event)
                found = self._of_sharded(groups, event)
            elif isinstance(event, Sharded):
                found = self._of_mesh(groups, event, earlier)
            if found is not None and event.site not in seen:
                seen.add(event.site)
                yield found

    def _of_sharded(self, groups: Groups, event: TensorParallel) -> Finding | None:
        """A plan for layers that are sharded."""
        for part in event.parts:
            owner = groups.owner(part, before=event)
            if owner is None or not groups.trace.modules[part].own_parameters:
                continue
            (shard, *_) = groups.shards(owner)
            if isinstance(shard, Sharded) and not _uses_same_mesh(shard, event):
                return self.finding(
                    event,
                    f"the plan distributes {groups.name(part)}, which `fully_shard` has sharded before",
                    help="Call `parallelize_module` before `fully_shard`.",
                    because=[(shard, "sharded here")],
                )
        return None

    def _of_mesh(
        self, groups: Groups, event: Sharded, earlier: list[TensorParallel]
    ) -> Finding | None:
        """A unit with parallel layers on a mesh that does not fit."""
        own = {
            one for module in (event.module, *event.group) for one in groups.members(module, event)
        }
        for parallel in earlier:
            parts = [one for one in parallel.parts if one in own]
            if not any(groups.trace.modules[one].own_parameters for one in parts):
                continue
            problem = _problem(event, parallel)
            if problem is not None:
                return self.finding(
                    event,
                    f"`fully_shard` shards {groups.name(parts[0])} {problem}",
                    help='Pass the other dimension of this mesh, as in `mesh=mesh["dp"]`.',
                    because=[(parallel, "parallelized here")],
                )
        return None


def _uses_same_mesh(shard: Sharded, parallel: TensorParallel) -> bool:
    """Whether both may use the same dimensions, which torch rejects in some styles only."""
    if "mesh" not in shard.options and "**" not in shard.options:
        return False
    return not shard.dims or not parallel.dims or shard.dims == parallel.dims


def _problem(event: Sharded, parallel: TensorParallel) -> str | None:
    """Why the mesh of `fully_shard` does not fit to the one of tensor parallelism."""
    if not parallel.dims or not parallel.whole_mesh:
        return None
    if "mesh" not in event.options and "**" not in event.options:
        return f"without a mesh, but it is parallel over `{parallel.dims[0]}` of a mesh"
    both = [one for one in event.dims if one in parallel.dims]
    if event.whole_mesh == parallel.whole_mesh and both:
        return f"over `{both[0]}`, the dimension of its tensor parallelism"
    return None
