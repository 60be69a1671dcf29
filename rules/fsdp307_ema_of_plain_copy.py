"""FSDP307: see the class."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import TensorsMixed, Trace
from fsdplint.trace.queries.common import class_name, only_fsdp2, sharded_here

COPY = """\
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


@torch.no_grad()
def update(ema, model, decay):
    for average, parameter in zip(ema.parameters(), model.parameters()):
        average.lerp_(parameter, 1 - decay)  # <- FSDP307


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
ema = copy.deepcopy(model)
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(2):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    update(ema, model, 0.99)
dist.destroy_process_group()
"""

SHADOW = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Average:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {}
        for name, parameter in model.named_parameters():
            self.shadow[name] = parameter.detach().clone()

    def update(self, model):
        for name, parameter in model.named_parameters():
            value = parameter.detach()
            self.shadow[name].mul_(self.decay).add_(value, alpha=1 - self.decay)  # <- FSDP307


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    average = Average(model, 0.99)
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(2):
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        average.update(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

BOTH_SHARDED = """\
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def shard(model):
    for layer in (model[0], model[2]):
        fully_shard(layer)
    return fully_shard(model)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
ema = copy.deepcopy(model).requires_grad_(False)
shard(model)
shard(ema)
model(torch.randn(4, 8)).pow(2).mean().backward()
with torch.no_grad():
    for average, parameter in zip(ema.parameters(), model.parameters()):
        average.lerp_(parameter, 0.01)
    torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 0.01)
dist.destroy_process_group()
"""

COPIED_AFTER = """\
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
shadow = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
model(torch.randn(4, 8)).pow(2).mean().backward()
for name, parameter in model.named_parameters():
    shadow[name].mul_(0.99).add_(parameter.detach(), alpha=0.01)
dist.destroy_process_group()
"""

WHOLE = """\
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
ema = copy.deepcopy(model)
with torch.no_grad():
    for average, parameter in zip(ema.parameters(), model.parameters()):
        average.copy_(parameter)
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).pow(2).mean().backward()
with torch.no_grad():
    for average, parameter in zip(ema.parameters(), model.parameters()):
        average.lerp_(parameter.full_tensor(), 0.01)
dist.destroy_process_group()
"""


class EmaOfPlainCopy(Rule):
    """An average of the weights is kept in plain tensors and updated with sharded parameters.

    ## What it does
    Finds `lerp_`, `add_`, `copy_`, arithmetic and `torch._foreach_...` between the sharded parameters of a
    model and plain tensors that were copied before `fully_shard`: a deep copy that is not sharded itself,
    or a dict of clones.

    ## Why is this bad?
    The parameters are DTensors once the model is sharded, the copies are not. The first update ends with

        RuntimeError: aten.lerp_.Scalar got mixed torch.Tensor and DTensor, need to convert all
        torch.Tensor to DTensor before calling distributed operators!

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - pytorch/pytorch#82070: copy the model first, then shard both
    - https://docs.pytorch.org/docs/stable/distributed.tensor.html
    """

    code = "FSDP307"
    name = "ema-of-plain-copy"
    severity = Severity.ERROR
    bad = (
        Bad(
            COPY, symptom=Symptom(raises=r"aten\.lerp_\.Scalar got mixed torch\.Tensor and DTensor")
        ),
        Bad(
            SHADOW,
            symptom=Symptom(raises=r"aten\.add_\.Tensor got mixed torch\.Tensor and DTensor"),
        ),
    )
    good = (
        Good(BOTH_SHARDED, why="the copy is sharded too"),
        Good(COPIED_AFTER, why="clones of sharded parameters are sharded as well"),
        Good(WHOLE, why="before the sharding, and with gathered parameters"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(TensorsMixed):
            modules = {*event.plain, *event.sharded}
            if any(trace.family_escaped(module) for module in modules):
                continue
            if any(_KIND.search(guard.text) for guard in event.guards):
                continue
            if all(only_fsdp2(trace, module, event) for module in event.sharded):
                yield self._finding(trace, event)

    def _finding(self, trace: Trace, event: TensorsMixed) -> Finding:
        module = event.sharded[0] if event.sharded else None
        operation = event.api.removeprefix("torch.")
        text = f"`{operation}` gets sharded parameters and plain tensors"
        if module is not None:
            text = (
                f"`{operation}` gets the sharded parameters of `{class_name(trace, module)}` and plain "
                f"tensors that were copied before it was sharded"
            )
        return self.finding(
            event,
            text,
            help="Shard the copy as the model is sharded (deep copy first, then `fully_shard` both), or "
            "make the clones after `fully_shard`: then both are DTensors.",
            because=sharded_here(trace, module, event) if module is not None else (),
        )


_KIND = re.compile(r"isinstance|hasattr|getattr|DTensor|type\(")
