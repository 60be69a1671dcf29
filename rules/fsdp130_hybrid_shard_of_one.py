"""FSDP130: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import MeshBuilt, Site, Trace, Wrapped
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.wrappers import strategy

FLAT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(0)
model = FSDP(  # <- FSDP130
    nn.Linear(8, 1),
    sharding_strategy=ShardingStrategy.HYBRID_SHARD,
    device_mesh=mesh,
    use_orig_params=True,
    device_id=torch.device("cpu"),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(2):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
sums = [None] * dist.get_world_size()
dist.all_gather_object(sums, sum(p.sum().item() for p in model.parameters()))
print("the replicas agree:", sums[0] == sums[1])
dist.destroy_process_group()
"""

TRAINER = """\
import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
from torch import nn

NODES, PER_NODE = 2, 1


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        mesh = dist.init_device_mesh("cpu", (NODES, PER_NODE), mesh_dim_names=("node", "rank"))
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
        self.model = fsdp.FullyShardedDataParallel(  # <- FSDP130
            net,
            device_mesh=mesh,
            sharding_strategy=fsdp.ShardingStrategy._HYBRID_SHARD_ZERO2,
            device_id=torch.device("cpu"),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, batch):
        self.model(batch).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def digests(self):
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, sum(p.sum().item() for p in self.model.parameters()))
        return found


def main():
    dist.init_process_group("gloo")
    trainer = Trainer()
    torch.manual_seed(1 + dist.get_rank())
    trainer.step(torch.randn(4, 8))
    print("digests differ:", len(set(trainer.digests())) > 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

SHARDED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

dist.init_process_group("gloo")
names = ("replicate", "shard")
mesh = init_device_mesh("cpu", (1, dist.get_world_size()), mesh_dim_names=names)
torch.manual_seed(0)
model = FSDP(
    nn.Linear(8, 1),
    sharding_strategy=ShardingStrategy.HYBRID_SHARD,
    device_mesh=mesh,
    device_id=torch.device("cpu"),
)
model(torch.randn(4, 8)).pow(2).mean().backward()
whole = FSDP(
    nn.Linear(8, 1),
    sharding_strategy=ShardingStrategy.NO_SHARD,
    device_id=torch.device("cpu"),
)
whole(torch.randn(4, 8)).pow(2).mean().backward()
print("trained")
dist.destroy_process_group()
"""

FSDP2 = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
torch.manual_seed(dist.get_rank())
model(torch.randn(4, 8)).pow(2).mean().backward()
gradient = model[0].weight.grad.full_tensor().sum().item()
found = [None] * dist.get_world_size()
dist.all_gather_object(found, gradient)
assert found[0] == found[1]
dist.destroy_process_group()
"""


FULL = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy

mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
model = FSDP(
    nn.Linear(8, 8),
    device_mesh=mesh,
    sharding_strategy=ShardingStrategy.FULL_SHARD,
    device_id=torch.device("cpu"),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
"""


class HybridShardOfOne(Rule):
    """FSDP1's hybrid sharding over a mesh with one rank in the sharding dimension.

    ## What it does
    Finds `FullyShardedDataParallel(..., device_mesh=mesh)` with the strategy `HYBRID_SHARD` or
    `_HYBRID_SHARD_ZERO2` where the mesh was built with the shape `(n, 1)`.

    ## Why is this bad?
    FSDP1 looks at the sharding group, finds one rank, and switches to `NO_SHARD` with a warning ("FSDP is
    switching to use `NO_SHARD` ... since the world size is 1"). With that it forgets the other dimension:
    no gradient is reduced over the replicas, and every rank trains a model of its own. There is no error;
    after one step the parameters of two ranks differed.

    ## Since
    torch 2.2, where FSDP1 takes a mesh. FSDP2 is right with such a mesh.

    ## References
    - pytorch/pytorch#154888.
    """

    code = "FSDP130"
    name = "hybrid-shard-of-one"
    severity = Severity.ERROR
    bad = (
        Bad(FLAT, symptom=Symptom(prints="the replicas agree: False")),
        Bad(TRAINER, symptom=Symptom(prints="digests differ: True")),
    )
    good = (
        Good(SHARDED, why="one replica that is sharded; and NO_SHARD, which reduces gradients"),
        Good(FSDP2, why="FSDP2 reduces over the replicas"),
        Good(FULL, why="sharded over all ranks, with a mesh of one dimension"),
    )

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
                    "or `fully_shard`, which knows such a mesh.",
                    because=[(mesh, "mesh built here")],
                )
