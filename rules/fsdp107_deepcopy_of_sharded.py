"""FSDP107: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import ModuleCopied, Site, Trace
from fsdplint.trace.groups import Groups, shard_events, sharded_by


class DeepcopyOfSharded(Rule):
    """A sharded model is copied with `copy.deepcopy`, or by an API that does so.

    ## What it does
    Finds `copy.deepcopy(model)`, `AveragedModel(model)` and other copies of a module that is sharded,
    by FSDP2 or FSDP1, or that has a sharded module in it. Copies made before sharding are fine, and
    so is a deepcopy of a state dict.

    ## Why is this bad?
    FSDP2 refuses: `AssertionError: FSDP does not support deepcopy. Please use state dict for
    serialization.` FSDP1 fails inside the copy, as `TypeError: cannot pickle 'module' object` with
    `use_orig_params=True`, and otherwise as a `RuntimeError` about views or graph leaves.

    There is no fix: a copy for an exponential moving average or a reference model has to be made
    before sharding and then be sharded in the same way, or be filled from a state dict.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - torch source, `torch/distributed/fsdp/_fully_shard/_fully_shard.py`, `_unimplemented_deepcopy`.
    - pytorch/pytorch#82070 and #149138: copy first, then shard both.
    """

    code = "FSDP107"
    name = "deepcopy-of-sharded"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for event in trace.of(ModuleCopied):
            copied = trace.module(event.module)
            if copied.repeated and not copied.children_known:
                continue  # one of several modules out of sight, of which others may be sharded
            parts = set(trace.submodules(event.module))
            shards = [
                shard
                for shard in shard_events(trace, before=event)
                if parts & set(sharded_by(shard))
            ]
            if not shards or event.site in seen:
                continue
            seen.add(event.site)
            whole = any(event.module in sharded_by(shard) for shard in shards)
            yield self.finding(
                event,
                f"`{event.api}` of {groups.name(trace.unwrapped(event.module))}, "
                f"{'which is' if whole else 'parts of which are'} sharded: FSDP modules cannot be copied",
                help="Copy the model before sharding it, and shard the copy in the same way.",
                because=[(shards[-1], "sharded here")],
            )

    bad = (
        Bad(
            code="""\
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
fully_shard(model)
ema = copy.deepcopy(model).requires_grad_(False)  # <- FSDP107
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    model(torch.randn(4, 4)).mean().backward()
    optimizer.step()
    with torch.no_grad():
        for average, parameter in zip(ema.parameters(), model.parameters()):
            average.lerp_(parameter, 0.1)
dist.destroy_process_group()
""",
            symptom=Symptom(raises="FSDP does not support deepcopy"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Trainer:
    def __init__(self, model):
        for layer in model:
            fully_shard(layer)
        self.model = model
        self.average = AveragedModel(  # <- FSDP107
            self.model, multi_avg_fn=get_ema_multi_avg_fn(0.99)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self, x):
        self.model(x).mean().backward()
        self.optimizer.step()
        self.average.update_parameters(self.model)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)))
    trainer.step(torch.randn(4, 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
            symptom=Symptom(raises="FSDP does not support deepcopy"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from copy import deepcopy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def make_reference(policy):
    reference = deepcopy(policy)  # <- FSDP107
    return reference.eval()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    policy = FSDP(nn.Linear(4, 2), device_id=torch.device("cpu"), use_orig_params=True)
    reference = make_reference(policy)
    x = torch.randn(4, 4)
    print((policy(x) - reference(x)).abs().max())
    dist.destroy_process_group()


main()
""",
            symptom=Symptom(raises="cannot pickle 'module' object"),
        ),
    )

    good = (
        Good(
            why="copied before sharding, both sharded",
            code="""\
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 1)
ema = copy.deepcopy(model).requires_grad_(False)
for net in (model, ema):
    fully_shard(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 4)).mean().backward()
optimizer.step()
model.reshard()
with torch.no_grad():
    for average, parameter in zip(ema.parameters(), model.parameters()):
        average.lerp_(parameter, 0.1)
dist.destroy_process_group()
""",
        ),
        Good(
            why="the state dict is copied, not the model",
            code="""\
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 1)
fully_shard(model)
best = copy.deepcopy(model.state_dict())
model(torch.randn(4, 4)).mean().backward()
model.load_state_dict(best)
dist.destroy_process_group()
""",
        ),
        Good(
            why="another model and a configuration are copied",
            code="""\
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Student(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config["width"], 1)

    def forward(self, x):
        return self.linear(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
teacher = nn.Linear(4, 1)
student = Student({"width": 4})
fully_shard(student)
reference = copy.deepcopy(teacher)
config = copy.deepcopy(student.config)
x = torch.randn(4, 4)
nn.functional.mse_loss(student(x), reference(x)).backward()
print("width", config["width"])
dist.destroy_process_group()
""",
        ),
    )
