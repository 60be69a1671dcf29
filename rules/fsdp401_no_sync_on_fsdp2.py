"""FSDP401: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import SyncSwitched, Trace
from fsdplint.trace.queries.common import asked_for, class_name, only_fsdp2, sharded_here

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

PLAIN_WITH = """\
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
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(3):
    batches = torch.randn(4, 4, 8)
    # The first three micro-batches only accumulate.
    with model.no_sync():  # <- FSDP401
        for batch in batches[:-1]:
            model(batch).pow(2).mean().backward()
    loss = model(batches[-1]).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
"""

CONDITIONAL = """\
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

ACCUMULATE = 4


class Trainer:
    def __init__(self, model, lr):
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        self.model = fully_shard(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)

    def train(self, steps):
        for step in range(steps):
            accumulating = (step + 1) % ACCUMULATE != 0
            ctx = self.model.no_sync() if accumulating else contextlib.nullcontext()  # <- FSDP401
            with ctx:
                loss = self.model(torch.randn(4, 8)).pow(2).mean()
                loss.backward()
            if not accumulating:
                self.optimizer.step()
                self.optimizer.zero_grad()
        return loss


dist.init_process_group("gloo")
torch.manual_seed(0)
trainer = Trainer(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)), lr=0.1)
print(f"last loss {trainer.train(8).item():.4f}")
dist.destroy_process_group()
"""

LEFT_EARLY = """\
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def train_epoch(model, optimizer, batches, accumulate):
    total = 0.0
    for step, batch in enumerate(batches):
        update = (step + 1) % accumulate == 0
        with nullcontext() if update else model.no_sync():  # <- FSDP401
            loss = model(batch).pow(2).mean()
            (loss / accumulate).backward()
            total += loss.item()
            if not update:
                continue
        optimizer.step()
        optimizer.zero_grad()
    return total / len(batches)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
print(f"mean loss {train_epoch(model, optimizer, torch.randn(8, 4, 8), accumulate=4):.4f}")
dist.destroy_process_group()
"""

FSDP1 = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with model.no_sync():
    model(torch.randn(4, 8)).sum().backward()
model(torch.randn(4, 8)).sum().backward()
optimizer.step()
dist.destroy_process_group()
"""

EITHER = """\
import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--fsdp", action="store_true")
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
if args.fsdp:
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
else:
    model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    last = step % 2 == 1
    if args.fsdp:
        model.set_requires_gradient_sync(last)
    with nullcontext() if last or args.fsdp else model.no_sync():
        model(torch.randn(4, 8)).pow(2).mean().backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
"""

ASKED = """\
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with model.no_sync() if hasattr(model, "no_sync") else nullcontext():
    model(torch.randn(4, 8)).pow(2).mean().backward()
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
"""

OR_ELSE = ASKED.replace(
    'model.no_sync() if hasattr(model, "no_sync") else nullcontext()',
    'getattr(model, "no_sync", nullcontext)()',
)

OWN_METHOD = """\
import contextlib

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

    @contextlib.contextmanager
    def no_sync(self):
        self.set_requires_gradient_sync(False)
        yield
        self.set_requires_gradient_sync(True)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
for layer in (model.up, model.down):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with model.no_sync():
    model(torch.randn(4, 8)).pow(2).mean().backward()
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
"""


class NoSyncOnFsdp2(Rule):
    """`no_sync()` is called on a module that `fully_shard` shards.

    ## What it does
    Finds `model.no_sync()` on a model that `fully_shard` shards.

    ## Why is this bad?
    DDP and FSDP1 are wrappers with a method `no_sync()`; `fully_shard` only changes the class of the
    model to an `FSDPModule`, which has none. The first accumulated step ends with

        AttributeError: 'FSDPNet' object has no attribute 'no_sync'

    Gradient accumulation without communication is a switch in FSDP2:
    `model.set_requires_gradient_sync(False)` before the micro-batches that only accumulate, and
    `model.set_requires_gradient_sync(True)` before the backward that is followed by the step.

    ## Fix safety
    Safe: the `with` block becomes its body between the two switches. What the block computed stays as it
    is, and synchronisation is on again after it, as `no_sync` left it. Where the block is left early
    (`break`, `continue`, `return`), the switch back stands in a `finally`. A context that is chosen
    elsewhere and handed around is left to you.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
      (`FSDPModule.set_requires_gradient_sync`)
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP401"
    name = "no-sync-on-fsdp2"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    bad = (
        Bad(
            PLAIN_WITH,
            symptom=Symptom(raises=r"AttributeError: 'FSDPNet' object has no attribute 'no_sync'"),
            changes=(
                (
                    """\
    with model.no_sync():
        for batch in batches[:-1]:
            model(batch).pow(2).mean().backward()
""",
                    """\
    model.set_requires_gradient_sync(False)
    for batch in batches[:-1]:
        model(batch).pow(2).mean().backward()
    model.set_requires_gradient_sync(True)
""",
                ),
            ),
            healthy=r"step 2 loss \d",
        ),
        Bad(
            CONDITIONAL,
            symptom=Symptom(raises=r"'FSDPSequential' object has no attribute 'no_sync'"),
            changes=(
                ("import contextlib\n\n", ""),
                (
                    """\
            ctx = self.model.no_sync() if accumulating else contextlib.nullcontext()
            with ctx:
                loss = self.model(torch.randn(4, 8)).pow(2).mean()
                loss.backward()
""",
                    """\
            self.model.set_requires_gradient_sync(not accumulating)
            loss = self.model(torch.randn(4, 8)).pow(2).mean()
            loss.backward()
            self.model.set_requires_gradient_sync(True)
""",
                ),
            ),
            healthy=r"last loss \d",
        ),
        Bad(
            LEFT_EARLY,
            symptom=Symptom(raises=r"'FSDPSequential' object has no attribute 'no_sync'"),
            changes=(
                ("from contextlib import nullcontext\n\n", ""),
                (
                    """\
        with nullcontext() if update else model.no_sync():
            loss = model(batch).pow(2).mean()
            (loss / accumulate).backward()
            total += loss.item()
            if not update:
                continue
""",
                    """\
        model.set_requires_gradient_sync(update)
        try:
            loss = model(batch).pow(2).mean()
            (loss / accumulate).backward()
            total += loss.item()
            if not update:
                continue
        finally:
            model.set_requires_gradient_sync(True)
""",
                ),
            ),
            healthy=r"mean loss \d",
        ),
    )
    good = (
        Good(FSDP1, why="FSDP1 has the method"),
        Good(EITHER, why="`no_sync` is reached with DDP only"),
        Good(ASKED, why="the program asks whether the method is there"),
        Good(OR_ELSE, why="without the method there is another"),
        Good(OWN_METHOD, why="the class brings its own `no_sync`"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(SyncSwitched):
            if event.api != "no_sync" or asked_for(event, "no_sync"):
                continue
            if not only_fsdp2(trace, event.module, event):
                continue
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"`{name}` is sharded by `fully_shard` and has no `no_sync()`",
                help="Switch with `set_requires_gradient_sync(False)` before the micro-batches that "
                "only accumulate and `set_requires_gradient_sync(True)` after them.",
                because=sharded_here(trace, event.module, event),
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.no_sync import rewrite_no_sync
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        if found is None:
            return None
        rewrite = Rewrite()
        if not rewrite_no_sync(rewrite, *found):
            return None
        return rewrite.fix("Switch the gradient synchronisation instead", Safety.SAFE)
