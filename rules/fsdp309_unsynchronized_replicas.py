"""FSDP309: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.fixes.seeding import seed_after_sharding
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.initial_weights import own_weights

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

HSDP = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
seed = 7
torch.manual_seed(seed + dist.get_rank())  # <- FSDP309
mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(20):
    model(torch.randn(8, 8)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()

output = model(torch.ones(1, 8)).detach()
outputs = [torch.empty_like(output) for _ in range(2)]
dist.all_gather(outputs, output)
apart = (outputs[0] - outputs[1]).abs().item()
print(f"the replicas {'agree' if apart < 1e-6 else 'disagree'} after 20 steps")
dist.destroy_process_group()
"""

TRAINER = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 32)
        self.down = nn.Linear(32, 1)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Trainer:
    def __init__(self, rank, world):
        self.rank = rank
        mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("dp_replicate", "dp_shard"))
        # Other data on every rank.
        torch.manual_seed(rank)  # <- FSDP309
        self.model = Net()
        for layer in (self.model.up, self.model.down):
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)

    def step(self):
        self.model(torch.randn(8, 8)).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(dist.get_rank(), dist.get_world_size())
    for _ in range(3):
        trainer.step()
    bias = trainer.model.down.bias.full_tensor().detach()
    biases = [torch.empty_like(bias) for _ in range(2)]
    dist.all_gather(biases, bias)
    print("one model" if torch.equal(*biases) else "two models")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

SAME_SEED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(1234)
mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
torch.manual_seed(1234 + dist.get_rank())
model(torch.randn(8, 8)).pow(2).mean().backward()
dist.destroy_process_group()
"""

REPLICAS_SENT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(1234 + dist.get_rank())
mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
replicas = mesh.get_group("replicate")
with torch.no_grad():
    for parameter in model.parameters():
        dist.broadcast(parameter.to_local(), group=replicas, group_src=0)
model(torch.randn(8, 8)).pow(2).mean().backward()
dist.destroy_process_group()
"""

LOADED = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
path = os.path.join(tempfile.gettempdir(), f"hsdp-{os.environ['MASTER_PORT']}.pt")
torch.manual_seed(1234 + rank)
mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
if rank == 0:
    torch.save(model.state_dict(), path)
dist.barrier()
model.load_state_dict(torch.load(path))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
model(torch.randn(8, 8)).pow(2).mean().backward()
dist.destroy_process_group()
"""


class UnsynchronizedReplicas(Rule):
    """The replicas of a model under HSDP are initialised with another seed on every rank.

    ## What it does
    Finds what FSDP308 finds, where ranks hold copies of each other's shards: `fully_shard` on a mesh of
    two dimensions, FSDP1's `HYBRID_SHARD` and `NO_SHARD` without `sync_module_states=True`.

    ## Why is this bad?
    The replicas' gradients are averaged, their weights are never compared. Replicas that start apart
    stay apart: the ranks train different models with gradients that belong to none of them, and a
    checkpoint holds one of these. Nothing is said; on two ranks the replicas still disagreed after 20
    steps with losses that look well.

    ## Fix safety
    Unsafe, as for FSDP308: the model is built from the same seed on all ranks, and the seed of each rank
    follows once it is sharded.

    ## Since
    torch 2.4, where `fully_shard` came; FSDP1 always.

    ## References
    - pytorch/pytorch#125431 and allenai/OLMo-core#319: replicas have to be broadcast by the user
    """

    code = "FSDP309"
    name = "unsynchronized-replicas"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    blends = True
    bad = (
        Bad(
            HSDP,
            symptom=Symptom(prints=r"the replicas disagree"),
            changes=(
                ("torch.manual_seed(seed + dist.get_rank())\n", "torch.manual_seed(seed)\n"),
                (
                    "fully_shard(model, mesh=mesh)\n",
                    """\
fully_shard(model, mesh=mesh)
torch.manual_seed(seed + dist.get_rank())
""",
                ),
            ),
            healthy=r"the replicas agree",
        ),
        Bad(TRAINER, symptom=Symptom(prints=r"two models")),
    )
    good = (
        Good(SAME_SEED, why="the seed of each rank comes after the sharding"),
        Good(REPLICAS_SENT, why="one replica sends its shards to the others"),
        Good(LOADED, why="all ranks load the same file"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for found in own_weights(trace):
            if not found.replicated:
                continue
            name = class_name(trace, found.module)
            yield self.finding(
                found.seed,
                f"every rank initialises `{name}` with a seed of its own: its replicas start with "
                f"different weights and never agree",
                help="Use the same seed on all ranks until the model is built, and one per rank only "
                "after that; or send the shards of one replica to the others before the first step "
                '(`dist.broadcast(p.to_local(), group=mesh.get_group("replicate"), group_src=0)`).',
                because=[(found.built, "built here"), (found.sharded, "sharded here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        return seed_after_sharding(finding)
