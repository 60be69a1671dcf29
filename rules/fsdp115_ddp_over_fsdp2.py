"""FSDP115: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Replicated, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import only_fsdp2, sharded_here

SCRIPT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model = DDP(model)  # <- FSDP115
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""

PART = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model):
        # the large layer is sharded, the rest is replicated
        fully_shard(model[0])
        self.model = DDP(model, find_unused_parameters=False)  # <- FSDP115
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        self.model(x).pow(2).mean().backward()
        self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer(nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 1))).step(torch.randn(16, 4))
    dist.destroy_process_group()
"""

OTHER_MODEL = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
teacher = fully_shard(nn.Linear(4, 1))
student = DDP(nn.Linear(4, 1))
x = torch.randn(16, 4)
nn.functional.mse_loss(student(x), teacher(x).detach()).backward()
dist.destroy_process_group()
"""

EITHER = """\
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


def parallelize(model, strategy):
    if strategy == "fsdp":
        for layer in model:
            fully_shard(layer)
        return fully_shard(model)
    return DDP(model)


dist.init_process_group("gloo")
torch.manual_seed(0)
strategy = sys.argv[1] if len(sys.argv) > 1 else "ddp"
model = parallelize(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)), strategy)
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""

MESH = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))
model = fully_shard(nn.Linear(4, 1), mesh=mesh)
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""


class DdpOverFsdp2(Rule):
    """DistributedDataParallel is put around a model that `fully_shard` shards.

    ## What it does
    Finds `DistributedDataParallel(model)` where `model` or a part of it is sharded by `fully_shard`.

    ## Why is this bad?
    DDP broadcasts the parameters of the model, which it cannot do with sharded ones:
    `NotImplementedError: Operator c10d.broadcast_.default does not have a sharding strategy registered`
    (`This operation would remove or reshape sharded dimension 0` where a shard is uneven), or, where only
    a part is sharded, `RuntimeError: aten.cat.default got mixed torch.Tensor and DTensor`.
    FSDP2 reduces the gradients over all ranks itself; a mesh of two dimensions replicates as well.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`: a 2D mesh replicates over dimension 0 and shards
      over dimension 1.
    """

    code = "FSDP115"
    name = "ddp-over-fsdp2"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen = set()
        for event in trace.of(Replicated):
            # Without its broadcast at the start DDP gets along, and out of sight it may be so.
            if event.site in seen or {"init_sync", "**"} & set(event.options):
                continue
            because = sharded_here(trace, event.inner, event)
            if not because or not only_fsdp2(trace, event.inner, event):
                continue
            if not all(trace.certainty.of_module(one) for one, _ in because):
                continue
            if trace.producer == "static" and trace.family_escaped(event.inner):
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"DDP is put around {groups.name(event.inner)}, which `fully_shard` shards",
                help="Leave DDP out; to replicate as well, give `fully_shard` a mesh of "
                "(replicas, shards).",
                because=because,
            )

    bad = (
        Bad(
            code=SCRIPT,
            symptom=Symptom(raises="broadcast_.default does not have a sharding strategy"),
        ),
        Bad(
            code=PART,
            symptom=Symptom(raises="cat.default got mixed torch.Tensor and DTensor"),
        ),
    )

    good = (
        Good(why="DDP around another model", code=OTHER_MODEL),
        Good(why="one or the other, as the configuration says", code=EITHER),
        Good(why="replicated by the mesh", code=MESH),
    )
