"""FSDP306: see the class."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Layout, RawRead, Trace
from fsdplint.trace.queries.common import class_name, only_fsdp2, perhaps_one_rank, sharded_here

if TYPE_CHECKING:
    import libcst as cst

    from fsdplint.interpreter import Program

EXPORT = """\
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def export(model, path):
    arrays = {}
    for name, value in model.state_dict().items():
        arrays[name] = value.detach().cpu().numpy()  # <- FSDP306
    if dist.get_rank() == 0:
        np.savez(path, **arrays)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).pow(2).mean().backward()
export(model, os.path.join(tempfile.mkdtemp(), "net.npz"))
dist.destroy_process_group()
"""

HISTOGRAMS = """\
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model):
        self.model = model
        for layer in (model[0], model[2]):
            fully_shard(layer)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.histograms = {}

    def step(self, batch):
        self.model(batch).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        for name, parameter in self.model.named_parameters():
            values = parameter.detach().cpu().numpy()  # <- FSDP306
            self.histograms[name] = np.histogram(values, bins=4)[0]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)))
    trainer.step(torch.randn(4, 8))
    print(f"{trainer.histograms['0.weight'].sum()} values counted")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

ADDRESSES = """\
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
model(torch.randn(4, 8)).pow(2).mean().backward()
# For a server on the same machine that reads the weights where they are.
addresses = {}
for name, parameter in model.named_parameters():
    addresses[name] = (parameter.data_ptr(), parameter.numel())  # <- FSDP306
print("address of 0.weight:", addresses["0.weight"][0])
dist.destroy_process_group()
"""

WHOLE = """\
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).pow(2).mean().backward()
arrays = {}
for name, value in model.state_dict().items():
    if isinstance(value, DTensor):
        value = value.full_tensor()
    arrays[name] = value.cpu().numpy()
arrays["1.running_mean"] = model.state_dict()["1.running_mean"].numpy()
for name, value in model.state_dict().items():
    if not isinstance(value, DTensor):
        arrays[name] = value.numpy()
options = StateDictOptions(full_state_dict=True)
for name, value in get_model_state_dict(model, options=options).items():
    arrays[name] = np.asarray(value.cpu())
for name, parameter in model.named_parameters():
    arrays[name] = parameter.full_tensor().detach().numpy()
dist.destroy_process_group()
"""

LOCAL = """\
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
initial = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
output = model(torch.randn(4, 8))
output.pow(2).mean().backward()
local = sum(np.abs(p.to_local().detach().numpy()).sum() for p in model.parameters())
shapes = [(p.numel(), tuple(p.shape)) for p in model.parameters()]
print(local, shapes, output.detach().numpy().mean(), len(initial))
dist.destroy_process_group()
"""

GATHERED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
fully_shard(model)
with torch.no_grad():
    model(torch.randn(4, 8))
# The root stays gathered after a forward: its parameters are plain tensors here.
values = [p.detach().clone().numpy() for p in model.parameters()]
model.reshard()
model.unshard()
values += [p.detach().tolist() for p in model.parameters()]
model.reshard()
dist.destroy_process_group()
"""


class RawShardedTensors(Rule):
    """The memory of a sharded tensor is read as if the tensor were a plain one.

    ## What it does
    Finds `numpy()`, `tolist()`, `numpy.asarray(...)`, `data_ptr()` and `untyped_storage()` on parameters,
    gradients and state dicts that `fully_shard` shards, also after `detach()`, `cpu()`, `clone()`. Tensors
    that `full_tensor()` gathered, local parts of `to_local()` and parameters that a forward or
    `unshard()` may have gathered make no finding.

    ## Why is this bad?
    These tensors are DTensors, which have no memory of their own. `numpy()` and `tolist()` end with

        RuntimeError: .numpy() is not supported for tensor subclasses.

    `untyped_storage()` ends with "its data is not allocated yet", and `data_ptr()` gives 0, with no error.

    ## Fix safety
    Unsafe: `full_tensor()` gathers the parameter on all ranks first, which costs communication and the
    memory of the whole. There is no fix under a test of the rank (all ranks have to take part), and none
    for a state dict, which may hold buffers: these are plain tensors.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.tensor.html (`DTensor.full_tensor`, `to_local`)
    - kvcache-ai/ktransformers#2147: the weights of a fine-tuning were lost
    """

    code = "FSDP306"
    name = "raw-sharded-tensors"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    bad = (
        Bad(EXPORT, symptom=Symptom(raises=r"\.numpy\(\) is not supported for tensor subclasses")),
        Bad(
            HISTOGRAMS,
            symptom=Symptom(raises=r"\.numpy\(\) is not supported for tensor subclasses"),
            changes=(("parameter.detach()", "parameter.full_tensor().detach()"),),
            healthy=r"256 values counted",
        ),
        Bad(ADDRESSES, symptom=Symptom(prints=r"address of 0\.weight: 0\b")),
    )
    good = (
        Good(WHOLE, why="gathered first, or buffers, which are plain tensors"),
        Good(LOCAL, why="not sharded yet, local parts, shapes, outputs"),
        Good(GATHERED, why="the parameters are gathered"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(RawRead):
            if event.layout is not Layout.SHARDED or _asks_for_kind(event):
                continue
            if event.of is not None and (
                not only_fsdp2(trace, event.of, event) or trace.family_escaped(event.of)
            ):
                continue
            yield self._finding(trace, event)

    def _finding(self, trace: Trace, event: RawRead) -> Finding:
        whose = f" of `{class_name(trace, event.of)}`" if event.of is not None else ""
        what = "gives 0 for" if event.api == "data_ptr" else "fails on"
        return self.finding(
            event,
            f"`{event.api}` {what} a sharded tensor{whose}: it is a DTensor, which has no memory of "
            f"its own",
            help="Gather it with `full_tensor()` on all ranks first, or take this rank's part with "
            "`to_local()`.",
            because=sharded_here(trace, event.of, event) if event.of is not None else (),
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.interpreter.values import ParametersOf

        event = finding.events[0]
        found = call_at(finding.site)
        if found is None or perhaps_one_rank(event) or not isinstance(event, RawRead):
            return None
        source, call = found
        base = _base(call) if event.api in ("numpy", "tolist") else None
        values = program.values(base) if base is not None else []
        if base is None or not values:
            return None
        if not all(isinstance(value, ParametersOf) and value.element for value in values):
            return None
        rewrite = Rewrite()
        rewrite.insert(source, source.span(base)[1], ".full_tensor()")
        return rewrite.fix("Gather the parameter first", Safety.UNSAFE)


_KIND = re.compile(r"isinstance|hasattr|getattr|DTensor|type\(|buffer|placements|running_|\bdim")


def _asks_for_kind(event: RawRead) -> bool:
    """Whether it stands under a test of what kind of tensor it is."""
    return any(_KIND.search(guard.text) for guard in event.guards)


def _base(call: cst.Call) -> cst.BaseExpression | None:
    """The name that a chain such as `p.detach().cpu().numpy()` starts with."""
    import libcst as cst

    node: cst.BaseExpression = call
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and not node.args:
        node = node.func.value
    return node if isinstance(node, cst.Name) else None
