"""FSDP402: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Clipped, Trace
from fsdplint.trace.queries.common import asked_for, class_name, only_fsdp2, sharded_here

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
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    model.clip_grad_norm_(1.0)  # <- FSDP402
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""

LOGGED = """\
import torch.distributed as dist
from torch import manual_seed, nn, optim, randn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x).relu()
        return x


def train(model, optimizer, steps, max_norm):
    for step in range(steps):
        loss = model(randn(4, 8)).pow(2).mean()
        loss.backward()
        # Gradients of the whole model, not of this rank's part.
        grad_norm = model.clip_grad_norm_(max_norm, norm_type=2)  # <- FSDP402
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f} grad norm {grad_norm:.4f}")


def main():
    dist.init_process_group("gloo")
    manual_seed(0)
    model = Net()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    train(model, optim.SGD(model.parameters(), lr=0.1), steps=3, max_norm=0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
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
model(torch.randn(4, 8)).sum().backward()
print(f"{model.clip_grad_norm_(1.0):.3f}")
optimizer.step()
dist.destroy_process_group()
"""

OWN_METHOD = """\
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

    def clip_grad_norm_(self, max_norm):
        return nn.utils.clip_grad_norm_(self.parameters(), max_norm)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
for layer in (model.up, model.down):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).pow(2).mean().backward()
model.clip_grad_norm_(1.0)
optimizer.step()
dist.destroy_process_group()
"""

EITHER = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard


def build(kind):
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    if kind == "fsdp1":
        return FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    for layer in (net[0], net[2]):
        fully_shard(layer)
    return fully_shard(net)


dist.init_process_group("gloo")
for kind in ("fsdp1", "fsdp2"):
    torch.manual_seed(0)
    model = build(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 8)).pow(2).mean().backward()
    if isinstance(model, FullyShardedDataParallel):
        norm = model.clip_grad_norm_(1.0)
    else:
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    print(kind, norm.item())
    optimizer.step()
dist.destroy_process_group()
"""


class ClipMethodOnFsdp2(Rule):
    """`clip_grad_norm_()` is called as a method of a module that `fully_shard` shards.

    ## What it does
    Finds `model.clip_grad_norm_(max_norm)` on a model that `fully_shard` shards.

    ## Why is this bad?
    The method belongs to FSDP1's wrapper, whose gradients `torch.nn.utils.clip_grad_norm_` would have
    taken for whole ones. An `FSDPModule` has no such method:

        AttributeError: 'FSDPNet' object has no attribute 'clip_grad_norm_'

    FSDP2's gradients are DTensors, and `torch.nn.utils.clip_grad_norm_` takes their norm over all
    ranks.

    ## Fix safety
    Safe: `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)` clips by the same norm that
    FSDP1's method would have clipped by. It returns a DTensor, which cannot be formatted
    (`f"{norm:.3f}"` raises a TypeError): where the norm is used for more than its `.item()`,
    `.full_tensor()` makes it the plain tensor that the method returned.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP402"
    name = "clip-method-on-fsdp2"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    bad = (
        Bad(
            FLAT,
            symptom=Symptom(raises=r"'FSDPSequential' object has no attribute 'clip_grad_norm_'"),
            changes=(
                (
                    "    model.clip_grad_norm_(1.0)",
                    "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
                ),
            ),
            healthy=r"loss \d",
        ),
        Bad(
            LOGGED,
            symptom=Symptom(raises=r"'FSDPNet' object has no attribute 'clip_grad_norm_'"),
            changes=(
                (
                    "model.clip_grad_norm_(max_norm, norm_type=2)",
                    "nn.utils.clip_grad_norm_(model.parameters(), max_norm, norm_type=2)"
                    ".full_tensor()",
                ),
            ),
            healthy=r"step 2 loss \d.* grad norm \d",
        ),
    )
    good = (
        Good(FSDP1, why="FSDP1 has the method"),
        Good(OWN_METHOD, why="the class brings its own method"),
        Good(EITHER, why="the method is called for FSDP1 only"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Clipped):
            if event.api != "method" or asked_for(event, "clip_grad_norm_"):
                continue
            for module in event.modules[:1]:
                if only_fsdp2(trace, module, event):
                    yield self._finding(trace, event, module)

    def _finding(self, trace: Trace, event: Clipped, module: str) -> Finding:
        return self.finding(
            event,
            f"`{class_name(trace, module)}` is sharded by `fully_shard` and has no method "
            f"`clip_grad_norm_()`",
            help="Call `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)`; its result is "
            "a DTensor, `.full_tensor()` of it can be logged.",
            because=sharded_here(trace, module, event),
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.clipping import clip_with_utils
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        if found is None:
            return None
        rewrite = Rewrite()
        if not clip_with_utils(rewrite, program, *found):
            return None
        return rewrite.fix("Clip with torch.nn.utils.clip_grad_norm_", Safety.SAFE)
