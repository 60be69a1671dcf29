"""FSDP410: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.sync_switches import left_off

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FLAT = """\
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
# Saves the all-gather of the next forward.
model.set_reshard_after_backward(False)  # <- FSDP410
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
batch = torch.randn(4, 8)
losses = []
for step in range(3):
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print("the first step was seen by the second forward:", losses[1] != losses[0])
dist.destroy_process_group()
"""

ACCUMULATED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model):
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        self.model = fully_shard(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def train_step(self, micro_batches):
        self.model.set_reshard_after_backward(False)  # <- FSDP410
        for number, micro_batch in enumerate(micro_batches):
            self.model.set_requires_gradient_sync(number == len(micro_batches) - 1)
            self.model(micro_batch).pow(2).mean().backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)))
    for step in range(2):
        print(f"step {step}: gradient norm {trainer.train_step(torch.randn(2, 4, 8)):.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

RESHARDED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FSDPModule, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model.set_reshard_after_backward(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
batch = torch.randn(4, 8)
losses = []
for step in range(3):
    loss = model(batch).pow(2).mean()
    loss.backward()
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
assert losses[0] > losses[1] > losses[2]
dist.destroy_process_group()
"""

LAST = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def train_step(model, optimizer, micro_batches):
    for number, micro_batch in enumerate(micro_batches):
        last = number == len(micro_batches) - 1
        model.set_requires_gradient_sync(last)
        model.set_reshard_after_backward(last)
        model(micro_batch).pow(2).mean().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return norm.item()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
assert all(train_step(model, optimizer, torch.randn(3, 4, 8)) > 0 for _ in range(2))
dist.destroy_process_group()
"""

MEASURED = """\
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
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# Two backward passes of one forward: the parameters stay for the second.
model.set_reshard_after_backward(False)
loss = model(torch.randn(4, 8)).pow(2).mean()
loss.backward(retain_graph=True)
model.set_reshard_after_backward(True)
loss.backward()
optimizer.step()
dist.destroy_process_group()
"""


class ReshardAfterBackwardOff(Rule):
    """Parameters are still gathered when the optimizer steps: `set_reshard_after_backward(False)`.

    ## What it does
    Finds `model.set_reshard_after_backward(False)` where the backward before an optimizer step runs
    with it and nothing calls `reshard()` before the step.

    ## Why is this bad?
    The optimizer updates the sharded parameters, but the modules still hold the gathered ones, and the
    next forward computes with those: the second of three steps has the loss of the first to the last
    digit, and later ones lag behind. Between backward and step the gradients are not to be found at
    `model.parameters()` either: `clip_grad_norm_` gives 0 and clips nothing. No error is raised.

    The documentation asks for `reshard()` on every FSDP module before the parameters are changed;
    on the root alone it is not enough.

    ## Fix safety
    Unsafe: the call is taken away, so that every backward reshards, as it does by default. That is what
    the step needs, but it also gives up the all-gathers that were to be saved between micro-batches;
    `set_reshard_after_backward(is_last_micro_batch)` keeps those.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
      (`FSDPModule.set_reshard_after_backward`)
    """

    code = "FSDP410"
    name = "reshard-after-backward-off"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    bad = (
        Bad(
            FLAT,
            symptom=Symptom(prints="seen by the second forward: False"),
            changes=(("model.set_reshard_after_backward(False)\n", ""),),
            healthy="seen by the second forward: True",
        ),
        Bad(
            ACCUMULATED,
            symptom=Symptom(prints=r"step 1: gradient norm 0\.000"),
            changes=(("        self.model.set_reshard_after_backward(False)\n", ""),),
            healthy=r"step 1: gradient norm \d\.(?!000)",
        ),
    )
    good = (
        Good(RESHARDED, why="every FSDP module is resharded before the step"),
        Good(LAST, why="the last backward before the step reshards"),
        Good(MEASURED, why="it is on again in the last backward"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        for found in left_off(trace, "set_reshard_after_backward"):
            if found.switch.site in seen:
                continue
            seen.add(found.switch.site)
            yield self.finding(
                found.switch,
                f"`{class_name(trace, found.switch.module)}` still holds gathered parameters when "
                f"the optimizer steps, and goes on computing with them",
                help="Reshard in the last backward (`set_reshard_after_backward(True)`), or call "
                "`reshard()` on every FSDP module before the step.",
                because=[
                    (found.backward, "this backward leaves the parameters gathered"),
                    (found.step, "this step updates the sharded ones"),
                ],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        if found is None:
            return None
        source, call = found
        if not isinstance(source.parent(call), cst.Expr):
            return None
        rewrite = Rewrite()
        rewrite.delete_statement(source, call)
        return rewrite.fix("Reshard after every backward", Safety.UNSAFE)
