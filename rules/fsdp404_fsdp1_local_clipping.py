"""FSDP404: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Clipped, Trace, Wrapped
from fsdplint.trace.queries.common import class_name, perhaps_one_rank
from fsdplint.trace.queries.wrappers import (
    outermost,
    shards,
    uses_original_parameters,
    wrapper_around,
    wrappers_of,
)

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FLAT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(16, 8)
for step in range(3):
    loss = model(data).pow(2).sum()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- FSDP404
    optimizer.step()
    optimizer.zero_grad()

norms = [None] * dist.get_world_size()
dist.all_gather_object(norms, round(norm.item(), 4))
print("the ranks clip by one norm:", len(set(norms)) == 1)
dist.destroy_process_group()
"""

TRAINER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.utils import clip_grad_norm_


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(x).relu()


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.blocks(x))


class Trainer:
    def __init__(self, max_norm):
        torch.manual_seed(0)
        self.model = FullyShardedDataParallel(
            Net(),
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            use_orig_params=True,
            device_id=torch.device("cpu"),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.max_norm = max_norm

    def train_step(self, batch):
        loss = self.model(batch).pow(2).sum()
        loss.backward()
        # exploding gradients at the start
        norm = clip_grad_norm_(  # <- FSDP404
            self.model.parameters(), max_norm=self.max_norm, norm_type=2.0
        )
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm.item()


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(max_norm=0.5)
    norm = trainer.train_step(torch.randn(16, 8))
    norms = [None] * dist.get_world_size()
    dist.all_gather_object(norms, round(norm, 4))
    print("one norm:", len(set(norms)) == 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

FILTERED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def clip(parameters, limit):
    return nn.utils.clip_grad_norm_(parameters, limit)  # <- FSDP404


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1, bias=False))
model = FSDP(model, use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).pow(2).mean().backward()
norm = clip([p for p in model.parameters() if p.grad is not None], 0.1)
optimizer.step()
norms = [None] * dist.get_world_size()
dist.all_gather_object(norms, norm.item())
print("same norm:", norms[0] == norms[1])
dist.destroy_process_group()
"""

WHOLE = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, fully_shard


def build(kind):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    if kind == "fsdp1":
        return FSDP(
            net, sharding_strategy=ShardingStrategy.NO_SHARD, device_id=torch.device("cpu")
        )
    return fully_shard(net)


dist.init_process_group("gloo")
for kind in ("fsdp1", "fsdp2"):
    model = build(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(4, 8)).pow(2).mean().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    print(kind, round(norm.item(), 4))
    optimizer.step()
dist.destroy_process_group()
"""

BY_VALUE = """\
import math

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Linear(8, 8), use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).pow(2).mean().backward()
nn.utils.clip_grad_value_(model.parameters(), 0.5)
local = nn.utils.clip_grad_norm_(model.parameters(), math.inf)  # measures, and clips nothing
total = local.pow(2)
dist.all_reduce(total)
print(f"norm {total.sqrt().item():.4f}")
optimizer.step()
dist.destroy_process_group()
"""

METHOD = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def clip(model, max_norm):
    if isinstance(model, FSDP):
        return model.clip_grad_norm_(max_norm)
    return torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)


def step(model, optimizer):
    model(torch.ones(4, 8)).pow(2).mean().backward()
    norm = clip(model, 0.5)
    optimizer.step()
    optimizer.zero_grad()
    return norm.item()


dist.init_process_group("gloo")
torch.manual_seed(0)
sharded = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"))
print(step(sharded, torch.optim.SGD(sharded.parameters(), lr=0.1)))
replicated = DDP(nn.Linear(8, 8))
print(step(replicated, torch.optim.SGD(replicated.parameters(), lr=0.1)))
dist.destroy_process_group()
"""


class Fsdp1LocalClipping(Rule):
    """Gradients of a model that FSDP1 shards are clipped by `torch.nn.utils.clip_grad_norm_`.

    ## What it does
    Finds `torch.nn.utils.clip_grad_norm_` over the parameters of a model that
    `FullyShardedDataParallel` wraps with a strategy that shards (all but `NO_SHARD`).

    It says nothing about `clip_grad_value_`, which is right on parts, nor about an infinite bound,
    which only measures.

    ## Why is this bad?
    FSDP1's gradients are plain tensors that hold this rank's part. The function takes the norm of that
    part for the norm of the whole, so each rank clips by a norm of its own, and all of these are too
    small: of a gradient of norm 4.01 on two ranks one clipped by 1.54 and the other by 3.70. There is no
    error. The parts of one parameter are scaled differently, and what is trained depends on the number of
    ranks.

    ## Fix safety
    Safe: `model.clip_grad_norm_(max_norm, norm_type)` of the outermost wrapper takes the norm over all
    ranks. Every rank has to call it. Where the parameters are filtered or come from somewhere else, where
    the model is wrapped in some configurations only, and for arguments that the method does not have,
    there is no fix.

    ## Since
    Always for FSDP1. For FSDP2 the function is right.

    ## References
    - torch docs, `FullyShardedDataParallel.clip_grad_norm_`.
    - pytorch/pytorch#72548.
    """

    code = "FSDP404"
    name = "fsdp1-local-clipping"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    bad = (
        Bad(
            FLAT,
            symptom=Symptom(prints="the ranks clip by one norm: False"),
            changes=(
                (
                    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
                    "model.clip_grad_norm_(1.0)",
                ),
            ),
            healthy="the ranks clip by one norm: True",
        ),
        Bad(
            TRAINER,
            symptom=Symptom(prints="one norm: False"),
            changes=(
                ("from torch.nn.utils import clip_grad_norm_\n", ""),
                (
                    "        norm = clip_grad_norm_(\n"
                    "            self.model.parameters(), max_norm=self.max_norm, norm_type=2.0\n"
                    "        )\n",
                    "        norm = self.model.clip_grad_norm_(\n"
                    "            max_norm=self.max_norm, norm_type=2.0\n"
                    "        )\n",
                ),
            ),
            healthy="one norm: True",
        ),
        Bad(FILTERED, symptom=Symptom(prints="same norm: False")),
    )
    good = (
        Good(WHOLE, why="NO_SHARD keeps gradients whole, and FSDP2's are DTensors"),
        Good(BY_VALUE, why="clipped by value, and a norm that is only measured"),
        Good(METHOD, why="the function is for the model that FSDP1 does not wrap"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Clipped):
            if event.api != "utils" or not event.by_norm or _infinite(event.max_norm):
                continue
            for module in event.modules:
                wrapper = _sharding(trace, module, event)
                if wrapper is not None:
                    yield self._finding(trace, event, module, wrapper)
                    break

    def _finding(self, trace: Trace, event: Clipped, module: str, wrapper: Wrapped) -> Finding:
        return self.finding(
            event,
            f"`clip_grad_norm_` takes the norm of this rank's part of the gradients of "
            f"`{class_name(trace, module)}`, which FSDP1 shards",
            help="Call `model.clip_grad_norm_(max_norm)` of the outermost FSDP wrapper, on all ranks.",
            because=[(wrapper, "sharded here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.clipping import clip_with_method
        from fsdplint.fixes.syntax import call_at
        from fsdplint.fixes.wrapper_options import rely_on_wrapping

        found = call_at(finding.site)
        if found is None or not _of_the_root(finding, program):
            return None
        rewrite = Rewrite()
        if not clip_with_method(rewrite, program, *found):
            return None
        rely_on_wrapping(rewrite, finding.events)
        return rewrite.fix("Clip with the wrapper's clip_grad_norm_", Safety.SAFE)


def _sharding(trace: Trace, module: str, event: Clipped) -> Wrapped | None:
    """The wrapper that leaves this rank with a part of the module's gradients."""
    wrappers = wrappers_of(trace, module, event)
    if wrappers:
        return outermost(trace, wrappers)[0] if all(map(shards, wrappers)) else None
    around = wrapper_around(trace, module, event)
    if around is None or not shards(around) or not uses_original_parameters(around):
        return None
    return around


def _infinite(bound: object) -> bool:
    if isinstance(bound, int | float):
        return bound == float("inf")
    return str(bound).rpartition(".")[2].lower() in ("inf", "infinity")


def _of_the_root(finding: Finding, program: Program) -> bool:
    """Whether all ranks clip, in every configuration, one whole model in a wrapper."""
    for trace in program.traces:
        for event in trace.of(Clipped):
            if event.site != finding.site:
                continue
            if len(event.modules) != 1 or perhaps_one_rank(event):
                return False
            module = event.modules[0]
            if trace.modules[module].wrapper != "fsdp1" or trace.ancestors(module):
                return False
    return True
