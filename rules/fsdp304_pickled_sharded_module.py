"""FSDP304: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Saved, Trace
from fsdplint.trace.queries.common import class_name, only_fsdp2, sharded_here, whole_file

WHOLE_MODULE = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
if dist.get_rank() == 0:
    torch.save(model, os.path.join(tempfile.mkdtemp(), "net.pt"))  # <- FSDP304
dist.barrier()
dist.destroy_process_group()
"""

LAST_MODEL = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.relu(self.layer(x))


class Trainer:
    def __init__(self, model, folder):
        for block in model:
            fully_shard(block)
        self.model = fully_shard(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        # One file per rank does not help: it is the class that pickle cannot find.
        self.path = os.path.join(folder, f"last-{dist.get_rank()}.pt")

    def step(self, batch, epoch):
        loss = self.model(batch).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        torch.save({"epoch": epoch, "model": self.model}, self.path)  # <- FSDP304


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(nn.Sequential(Block(), Block()), tempfile.mkdtemp())
    for epoch in range(2):
        trainer.step(torch.randn(4, 8), epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

BEFORE_SHARDING = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
if dist.get_rank() == 0:
    torch.save(model, os.path.join(tempfile.mkdtemp(), "initial.pt"))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
dist.barrier()
dist.destroy_process_group()
"""

OTHER_MODEL = """\
import copy
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
exported = copy.deepcopy(model)
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=options)
if dist.get_rank() == 0:
    exported.load_state_dict(state)
    torch.save(exported, os.path.join(tempfile.mkdtemp(), "net.pt"))
dist.barrier()
dist.destroy_process_group()
"""

FACTS_ABOUT_IT = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
loss = model(torch.randn(4, 8)).sum()
loss.backward()
folder = os.path.join(tempfile.gettempdir(), "run-" + os.environ["MASTER_PORT"])
os.makedirs(folder, exist_ok=True)
torch.save({"loss": loss.detach(), "class": str(model)}, f"{folder}/facts-{rank}.pt")
torch.save(model.state_dict(), f"{folder}/model-{rank}.pt")
dist.destroy_process_group()
"""


class PickledShardedModule(Rule):
    """A model that `fully_shard` shards is itself pickled.

    ## What it does
    Finds `torch.save(model, path)` of a sharded model, also of a dict or list that holds one.

    ## Why is this bad?
    `fully_shard` gives the model a class that it makes at run time, which pickle cannot find by its
    name. The save ends with

        PicklingError: Can't pickle <class 'torch.distributed.fsdp....FSDPSequential'>: attribute lookup
        FSDPSequential on torch.distributed.fsdp... failed

    and leaves a torn file. Where only rank 0 saves, the other ranks then wait for it.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (the class of the module
      is made in place); https://docs.pytorch.org/docs/stable/notes/serialization.html (save the state
      dict, not the module)
    """

    code = "FSDP304"
    name = "pickled-sharded-module"
    severity = Severity.ERROR
    bad = (
        Bad(WHOLE_MODULE, symptom=Symptom(raises=r"PicklingError: Can't pickle .*FSDPSequential")),
        Bad(LAST_MODEL, symptom=Symptom(raises=r"PicklingError: Can't pickle .*FSDP")),
    )
    good = (
        Good(BEFORE_SHARDING, why="it is not sharded yet"),
        Good(OTHER_MODEL, why="a copy from before the sharding, which got the whole state"),
        Good(FACTS_ABOUT_IT, why="the loss and the state of the model, not the model"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Saved):
            if not whole_file(event.api) or event.api.startswith("safetensors."):
                continue
            for module in event.modules:
                if only_fsdp2(trace, module, event):
                    yield self._finding(trace, event, module)
                    break

    def _finding(self, trace: Trace, event: Saved, module: str) -> Finding:
        return self.finding(
            event,
            f"`{class_name(trace, module)}` itself is saved: a module that `fully_shard` shards cannot "
            f"be pickled",
            help="Save its state: `get_model_state_dict(model, options=StateDictOptions("
            "full_state_dict=True, cpu_offload=True))`, taken on all ranks and written by rank 0. What "
            "reads the file has to build the model and load the state into it.",
            because=sharded_here(trace, module, event),
        )
