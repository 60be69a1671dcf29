"""FSDP403: see the class."""

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
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
batch = torch.randn(4, 8)
losses = []
accumulate = 4
for step in range(8):
    # Only every fourth backward communicates.
    model.set_requires_gradient_sync(False)  # <- FSDP403
    loss = model(batch).pow(2).mean()
    (loss / accumulate).backward()
    losses.append(loss.item())
    if (step + 1) % accumulate == 0:
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} gradient norm {norm.item():.4f}")
print("the loss went down:", losses[-1] < losses[0])
dist.destroy_process_group()
"""

ONCE = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model, micro_batches=2):
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        self.model = fully_shard(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.micro_batches = micro_batches
        if micro_batches > 1:
            # Gradients are accumulated without communication.
            self.model.set_requires_gradient_sync(False)  # <- FSDP403

    def train_step(self, batch):
        total = 0.0
        for micro_batch in batch.chunk(self.micro_batches):
            loss = self.model(micro_batch).pow(2).mean()
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)))
    batch = torch.randn(8, 8)
    first, *_, last = [trainer.train_step(batch) for _ in range(3)]
    print("every step has the same loss:", first == last)
    dist.destroy_process_group()


main()
"""

TOO_LATE = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def train_step(model, optimizer, micro_batches):
    model.set_requires_gradient_sync(False)  # <- FSDP403
    for micro_batch in micro_batches:
        model(micro_batch).pow(2).mean().backward()
    found = [p.grad is not None for p in model.parameters()]
    optimizer.step()
    optimizer.zero_grad()
    model.set_requires_gradient_sync(True)
    return any(found)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    print("there were gradients:", train_step(model, optimizer, torch.randn(4, 4, 8)))
dist.destroy_process_group()
"""

CONDITION = """\
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
for step in range(4):
    update = step % 2 == 1
    model.set_requires_gradient_sync(update)
    model(torch.randn(4, 8)).pow(2).mean().backward()
    if update:
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
"""

BRANCHES = """\
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
for step in range(4):
    if step % 2 == 0:
        model.set_requires_gradient_sync(False)
    else:
        model.set_requires_gradient_sync(True)
    model(torch.randn(4, 8)).pow(2).mean().backward()
    if step % 2 == 1:
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
"""

LAST = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def train_step(model, optimizer, micro_batches):
    model.set_requires_gradient_sync(False)
    for number, micro_batch in enumerate(micro_batches):
        if number == len(micro_batches) - 1:
            model.set_requires_gradient_sync(True)
        model(micro_batch).pow(2).mean().backward()
    assert all(p.grad is not None for p in model.parameters())
    optimizer.step()
    optimizer.zero_grad()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    train_step(model, optimizer, torch.randn(4, 4, 8))
dist.destroy_process_group()
"""

OTHER = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
generator, critic = nn.Linear(8, 8), nn.Linear(8, 1)
fully_shard(generator)
fully_shard(critic)
optimizer = torch.optim.SGD(generator.parameters(), lr=0.1)
for step in range(2):
    # The critic's gradients are not wanted here.
    critic.set_requires_gradient_sync(False)
    critic(generator(torch.randn(4, 8))).mean().backward()
    assert generator.weight.grad is not None
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


class SyncNeverReenabled(Rule):
    """Gradient synchronisation is off in every backward before an optimizer step.

    ## What it does
    Finds `model.set_requires_gradient_sync(False)` where no backward pass up to the optimizer's step
    runs with synchronisation on again.

    ## Why is this bad?
    With synchronisation off a backward keeps whole, unreduced gradients aside, for the backward that
    reduces them. Until then the parameters that the optimizer holds have no gradient (`p.grad` is None):
    the step changes nothing, the norm that `clip_grad_norm_` gives is 0, and the loss stays where it
    is. No error is raised.

    ## Fix safety
    Unsafe: where the step stands under a condition (`if (step + 1) % accumulate == 0:`) that can be
    asked before the backward as well, this becomes the switch's argument.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
      (`FSDPModule.set_requires_gradient_sync`)
    - pytorch/pytorch#118298, verl-project/verl#7095
    """

    code = "FSDP403"
    name = "sync-never-reenabled"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    bad = (
        Bad(
            FLAT,
            symptom=Symptom(prints=r"gradient norm 0\.0000\n(.*\n)*the loss went down: False"),
            changes=(
                (
                    "set_requires_gradient_sync(False)",
                    "set_requires_gradient_sync((step + 1) % accumulate == 0)",
                ),
            ),
            healthy="the loss went down: True",
        ),
        Bad(
            ONCE,
            symptom=Symptom(prints="every step has the same loss: True"),
        ),
        Bad(TOO_LATE, symptom=Symptom(prints="there were gradients: False")),
    )
    good = (
        Good(CONDITION, why="the argument is true in the backward before the step"),
        Good(BRANCHES, why="it is on again in the backward before the step"),
        Good(LAST, why="the last micro-batch synchronises"),
        Good(OTHER, why="the optimizer that steps is another module's"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        for found in left_off(trace, "set_requires_gradient_sync"):
            if found.switch.site in seen:
                continue
            seen.add(found.switch.site)
            yield self.finding(
                found.switch,
                f"`{class_name(trace, found.switch.module)}` does not synchronise gradients in any "
                f"backward before the step, which so changes nothing",
                help="Call `set_requires_gradient_sync(True)` before the last backward that the step "
                "follows.",
                because=[
                    (found.backward, "this backward keeps its gradients to itself"),
                    (found.step, "this step finds no gradients"),
                ],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.places import common_block
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.syntax.dotted import bound_by, dotted_names, part_of, path_of

        found = call_at(finding.site)
        if found is None:
            return None
        source, call = found
        switch, backward, step = finding.events
        place = common_block(switch, step)
        if place is None or place.source is not source or len(call.args) != 1:
            return None
        first, branch = place.first, place.second
        plain = isinstance(first, cst.SimpleStatementLine) and len(first.body) == 1
        if not plain or not isinstance(branch, cst.If) or branch.orelse is not None:
            return None
        asked = [path_of(name) for name in dotted_names(branch.test)]
        if not isinstance(branch.test, cst.Comparison | cst.Name) or not all(asked):
            return None
        body = list(place.block.body)
        start, end = body.index(first), body.index(branch)
        between = body[start:end]
        bound = {path for statement in between for path in bound_by(statement)}
        if any(part_of(name, path) for name in asked for path in bound):
            return None
        other = common_block(switch, backward)
        if other is None or other.second not in between:
            return None
        rewrite = Rewrite()
        rewrite.replace(source, call.args[0].value, source.code(branch.test))
        return rewrite.fix("Synchronise before the step", Safety.UNSAFE)
