"""FSDP123: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Sharded, Trace
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
mesh = init_device_mesh("cpu", (1, dist.get_world_size()))
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)  # <- FSDP123
fully_shard(model, mesh=mesh)  # <- FSDP123
model(torch.randn(16, 4)).pow(2).mean().backward()
print("trained")
dist.destroy_process_group()
"""

TRAINER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, replicas):
        torch.manual_seed(0)
        shards = dist.get_world_size() // replicas
        self.mesh = init_device_mesh(
            "cpu",
            mesh_shape=(replicas, shards),
        )
        self.model = nn.Linear(4, 4)
        self.apply_fsdp()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def apply_fsdp(self):
        options = {"mesh": self.mesh, "reshard_after_forward": False}
        fully_shard(self.model, **options)  # <- FSDP123

    def step(self, x):
        self.model(x).pow(2).mean().backward()
        self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(replicas=2).step(torch.randn(16, 4))
    print("trained")
    dist.destroy_process_group()
"""

NAMED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

NAMES = ("replicate", "shard")


def build_mesh(shape, **options):
    return init_device_mesh("cpu", shape, **options)


dist.init_process_group("gloo")
torch.manual_seed(0)
flat = build_mesh((dist.get_world_size(),))
grid = build_mesh((1, dist.get_world_size()), mesh_dim_names=NAMES)
for mesh in (flat, grid, grid["shard"]):
    model = nn.Linear(4, 1)
    fully_shard(model, mesh=mesh)
    model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""

FSDP1 = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (1, dist.get_world_size()))
old = FSDP(
    nn.Linear(4, 1),
    device_mesh=mesh,
    sharding_strategy=ShardingStrategy.HYBRID_SHARD,
    device_id=torch.device("cpu"),
)
new = fully_shard(nn.Linear(4, 1))
for model in (old, new):
    model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""

LATER = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def dimensions(replicas):
    world = dist.get_world_size()
    if replicas == 1:
        return (world,), ("shard",)
    return (replicas, world // replicas), ("replicate", "shard")


dist.init_process_group("gloo")
torch.manual_seed(0)
for replicas in (1, 2):
    shape, names = dimensions(replicas)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model = nn.Linear(4, 1)
    fully_shard(model, mesh=mesh)
    model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""


class UnnamedHsdpMesh(Rule):
    """`fully_shard` is given a mesh of two dimensions that have no names.

    ## What it does
    Finds `fully_shard(model, mesh=mesh)` where `mesh` comes from `init_device_mesh` with two dimensions
    and without `mesh_dim_names`. A mesh of one dimension needs no names, and FSDP1 takes one of two
    without.

    ## Why is this bad?
    FSDP2 looks for its two groups by name: `AssertionError: Please init the 2D mesh for HSDP with
    mesh_dim_names specified`.

    ## Fix safety
    Safe: the mesh gets `mesh_dim_names=("replicate", "shard")`, which is how FSDP2 reads the two dimensions.

    ## Since
    torch 2.6 for this error, 2.4 for the need.

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
                "the mesh has two dimensions without names, and `fully_shard` needs their names",
                help='Build the mesh with `mesh_dim_names=("replicate", "shard")`.',
                because=[(mesh, "the mesh is built here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.mesh import name_dimensions

        rewrite = Rewrite()
        if not name_dimensions(rewrite, finding.events[1].site):
            return None
        return rewrite.fix("Name the dimensions of the mesh", Safety.SAFE)

    bad = (
        Bad(
            code=SCRIPT,
            symptom=Symptom(
                raises="Please init the 2D mesh for HSDP with mesh_dim_names specified"
            ),
            changes=(
                (
                    "(1, dist.get_world_size()))",
                    '(1, dist.get_world_size()), mesh_dim_names=("replicate", "shard"))',
                ),
            ),
            healthy="trained",
        ),
        Bad(
            code=TRAINER,
            symptom=Symptom(
                raises="Please init the 2D mesh for HSDP with mesh_dim_names specified"
            ),
            changes=(
                (
                    "            mesh_shape=(replicas, shards),\n",
                    "            mesh_shape=(replicas, shards),\n"
                    '            mesh_dim_names=("replicate", "shard"),\n',
                ),
            ),
            healthy="trained",
        ),
    )

    good = (
        Good(why="one dimension, named dimensions, and one dimension of two", code=NAMED),
        Good(why="a mesh that only FSDP1 gets", code=FSDP1),
        Good(why="shape and names come out of a function together", code=LATER),
    )
