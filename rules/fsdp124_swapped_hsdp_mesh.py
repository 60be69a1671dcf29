"""FSDP124: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import MeshBuilt, Sharded, Trace
from fsdplint.trace.queries.common import mesh_of

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

SCRIPT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
# shard over all ranks
mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("shard", "replicate"))
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)  # <- FSDP124
fully_shard(model, mesh=mesh)  # <- FSDP124
model(torch.randn(16, 4)).pow(2).mean().backward()
print(f"{model[0].weight.to_local().numel()} of {model[0].weight.numel()} elements on this rank")
dist.destroy_process_group()
"""

TRAINER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

DIMENSIONS = ["dp_shard", "dp_replicate"]


class Trainer:
    def __init__(self, shards):
        torch.manual_seed(0)
        shape = (shards, dist.get_world_size() // shards)
        self.mesh = init_device_mesh("cpu", shape, mesh_dim_names=DIMENSIONS)
        self.model = fully_shard(nn.Linear(4, 4), mesh=self.mesh)  # <- FSDP124
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        self.model(x).pow(2).mean().backward()
        self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer(shards=2)
    trainer.step(torch.randn(16, 4))
    print("elements on this rank:", trainer.model.weight.to_local().numel())
    dist.destroy_process_group()
"""

IN_ORDER = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (1, dist.get_world_size()), mesh_dim_names=("replicate", "shard"))
model = fully_shard(nn.Linear(4, 4), mesh=mesh)
model(torch.randn(16, 4)).pow(2).mean().backward()
assert model.weight.to_local().numel() == 8
dist.destroy_process_group()
"""

ONE_DIMENSION = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("shard", "replicate"))
model = fully_shard(nn.Linear(4, 4), mesh=mesh["shard"])
model(torch.randn(16, 4)).pow(2).mean().backward()
assert model.weight.to_local().numel() == 8
dist.destroy_process_group()
"""

OTHER_NAMES = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
# what is inside of a node is sharded, the nodes are replicas of each other
mesh = init_device_mesh("cpu", (1, dist.get_world_size()), mesh_dim_names=("inter", "intra"))
shards = init_device_mesh("cpu", (1, dist.get_world_size()), mesh_dim_names=("dp", "fsdp_shard"))
for one in (mesh, shards):
    model = fully_shard(nn.Linear(4, 4), mesh=one)
    model(torch.randn(16, 4)).pow(2).mean().backward()
    assert model.weight.to_local().numel() == 8
dist.destroy_process_group()
"""


class SwappedHsdpMesh(Rule):
    """The dimensions of a mesh are named shard and replicate, in the order that FSDP2 reads otherwise.

    ## What it does
    Finds `fully_shard(model, mesh=mesh)` where `mesh` comes from `init_device_mesh` with two dimensions,
    the first one with "shard" in its name and the second one with "replicate".

    Given a part of such a mesh (`mesh["shard"]`), or with `dp_mesh_dims`, FSDP2 does what is said.

    ## Why is this bad?
    FSDP2 goes by position and not by name: it replicates over dimension 0 and shards over dimension 1.
    With the mesh (2, 1) of the names ("shard", "replicate"), each of two ranks held all 32 elements of
    a weight and not 16. There is no error, and the training is right; the memory that sharding was to
    save is not saved.

    ## Fix safety
    Unsafe: shape and names are swapped where the mesh is built. The ranks of a group are others then,
    and code that reads the mesh by position reads the other dimension. There is no fix where shape or
    names are not written there.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`: a 2D mesh replicates over dimension 0 and shards
      over dimension 1.
    - pytorch/pytorch#161776.
    """

    code = "FSDP124"
    name = "swapped-hsdp-mesh"
    severity = Severity.WARNING
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Sharded):
            mesh = mesh_of(trace, event)
            if mesh is None or not _swapped(mesh) or event.site in seen:
                continue
            if "dp_mesh_dims" in event.options or "**" in event.options:
                continue
            seen.add(event.site)
            one, other = mesh.dim_names
            yield self.finding(
                event,
                f"`fully_shard` replicates over the first dimension of the mesh, here `{one}`, and "
                f"shards over the second, `{other}`",
                help="Build the mesh with the replicas first: (replicas, shards).",
                because=[(mesh, "the mesh is built here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.mesh import swap_dimensions

        rewrite = Rewrite()
        if not swap_dimensions(rewrite, finding.events[1].site):
            return None
        return rewrite.fix("Put the replicas first in the mesh", Safety.UNSAFE)

    bad = (
        Bad(
            code=SCRIPT,
            symptom=Symptom(prints="^32 of 32 elements on this rank"),
            changes=(
                (
                    '(dist.get_world_size(), 1), mesh_dim_names=("shard", "replicate")',
                    '(1, dist.get_world_size()), mesh_dim_names=("replicate", "shard")',
                ),
            ),
            healthy="^16 of 32 elements on this rank",
        ),
        Bad(code=TRAINER, symptom=Symptom(prints="^elements on this rank: 16")),
    )

    good = (
        Good(why="the replicas first", code=IN_ORDER),
        Good(why="only the dimension to shard over is given", code=ONE_DIMENSION),
        Good(why="names that say nothing of the kind", code=OTHER_NAMES),
    )


def _swapped(mesh: MeshBuilt) -> bool:
    names = [name.lower() for name in mesh.dim_names]
    if len(names) != 2 or len(mesh.shape) != 2:
        return False
    replicas = ["repl" in name for name in names]
    return replicas == [False, True] and "shard" in names[0] and "shard" not in names[1]
