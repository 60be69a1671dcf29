"""FSDP212: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Fsdp1Used, Trace
from fsdplint.trace.queries.common import asked_for, class_name, fsdp1_on_fsdp2, sharded_here

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

ATTRIBUTES = ("module", "_fsdp_wrapped_module")

FLAT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 32)
        self.down = nn.Linear(32, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
for layer in (model.up, model.down):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(
    model.module.parameters(),  # <- FSDP212
    lr=0.1,
)
for step in range(3):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""

TRAINER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model, lr):
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        self.model = fully_shard(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)

    def step(self, batch):
        loss = self.model(batch).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def describe(self):
        inner = self.model._fsdp_wrapped_module  # <- FSDP212
        return {name: tuple(p.shape) for name, p in inner.named_parameters()}


dist.init_process_group("gloo")
torch.manual_seed(0)
trainer = Trainer(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)), lr=0.1)
for _ in range(2):
    trainer.step(torch.randn(4, 8))
print("shapes", trainer.describe())
dist.destroy_process_group()
"""

EITHER = """\
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--ddp", action="store_true")
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
if args.ddp:
    model = DistributedDataParallel(model)
else:
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
first = model.module[0]  # <- FSDP212
print(f"first {first.weight.shape}")
dist.destroy_process_group()
"""

ASKED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def inside(model):
    if isinstance(model, DistributedDataParallel):
        return model.module
    return model


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
print(len(inside(model)))
print(len(model.module if hasattr(model, "module") else model))
print(len(getattr(model, "_fsdp_wrapped_module", model)))
try:
    plain = model.module
except AttributeError:
    plain = model
print(len(plain))
dist.destroy_process_group()
"""

OWN_CHILD = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class WithLoss(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x).pow(2).mean()


class Proxy(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        return self.__dict__["_modules"]["inner"] if name == "module" else super().__getattr__(name)

    def forward(self, x):
        return self.inner(x)


class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x)

    def expose(self):
        setattr(self, "module", self.layer)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = WithLoss(nn.Linear(8, 8))
fully_shard(model.module)
fully_shard(model)
model(torch.randn(4, 8)).backward()
print(model.module.weight.shape)
proxy = Proxy(nn.Linear(8, 8))
fully_shard(proxy)
print(proxy.module.weight.shape)
late = fully_shard(Late())
getattr(late, "".join(["ex", "pose"]))()
print(late.module.weight.shape)
dist.destroy_process_group()
"""

WRAPPERS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
sharded = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"))
print(type(sharded.module).__name__, type(sharded._fsdp_wrapped_module).__name__)
replicated = DDP(nn.Linear(8, 8))
print(type(replicated.module).__name__)
dist.destroy_process_group()
"""


class WrapperAttributeOnFsdp2(Rule):
    """The module inside of a wrapper is asked for, of a model that `fully_shard` shards.

    ## What it does
    Finds `model.module` and `model._fsdp_wrapped_module` on a model that `fully_shard` shards and that has no such
    attribute of its own.

    ## Why is this bad?
    FSDP1 and DDP are wrappers with the model in `.module`. `fully_shard` wraps nothing: it changes the class of
    the model in place, so that the model is what `.module` was. The program ends with

        AttributeError: 'FSDPNet' object has no attribute 'module'

    ## Fix safety
    Safe: the attribute is dropped. A program that has a wrapper there in another configuration (DDP) is left
    to you.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html ("the class is changed in-place")
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP212"
    name = "wrapper-attribute-on-fsdp2"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    bad = (
        Bad(
            FLAT,
            symptom=Symptom(raises=r"AttributeError: 'FSDPNet' object has no attribute 'module'"),
            changes=(("model.module.parameters()", "model.parameters()"),),
            healthy=r"^loss \d",
        ),
        Bad(
            TRAINER,
            symptom=Symptom(
                raises=r"'FSDPSequential' object has no attribute '_fsdp_wrapped_module'"
            ),
            changes=(("self.model._fsdp_wrapped_module", "self.model"),),
            healthy=r"^shapes \{'0.weight': \(32, 8\)",
        ),
        Bad(
            EITHER,
            symptom=Symptom(raises=r"'FSDPSequential' object has no attribute 'module'"),
            config_dependent=True,
        ),
    )
    good = (
        Good(ASKED, why="the program asks first, or catches the failure"),
        Good(OWN_CHILD, why="the attribute is the model's own"),
        Good(WRAPPERS, why="FSDP1's and DDP's wrappers have it"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            attribute = event.api.removeprefix("FSDP.")
            if attribute not in ATTRIBUTES or asked_for(event, attribute):
                continue
            if event.module is None or not fsdp1_on_fsdp2(trace, event):
                continue
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"`{name}` is sharded by `fully_shard`, which is no wrapper: it has no `.{attribute}`",
                help="Use the model itself; where another configuration wraps it (DDP), ask which it is.",
                because=sharded_here(trace, event.module, event),
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.interpreter.values import ModuleValue
        from fsdplint.source.source import NodeSite

        site = finding.site
        if finding.configuration or not isinstance(site, NodeSite):
            return None
        node = site.node
        if not isinstance(node, cst.Attribute):
            return None
        values = program.values(node.value)
        if not all(
            isinstance(v, ModuleValue) and v.wrapper not in ("ddp", "fsdp1") for v in values
        ):
            return None
        rewrite = Rewrite()
        _, end = site.source.span(node.value)
        rewrite.delete(site.source, end + len(_brackets(node.value)), site.source.span(node)[1])
        return rewrite.fix("Use the model itself", Safety.SAFE)


def _brackets(node: object) -> str:
    """The closing brackets that stand behind an expression."""
    return ")" * len(getattr(node, "rpar", ()))
