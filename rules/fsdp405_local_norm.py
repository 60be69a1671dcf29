"""FSDP405: see the class."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, Collective, Event, GuardKind, PartialRead, Trace
from fsdplint.trace.queries.common import perhaps_one_rank
from fsdplint.trace.torch_versions import WHOLE_NORM_SINCE

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
    total_norm = 0.0
    for p in model.parameters():
        if p.grad is not None:
            param_norm = p.grad.detach().data.norm(2)
            total_norm += param_norm.item() ** 2  # <- FSDP405
    total_norm = total_norm**0.5
    clipped = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
    same = abs(total_norm - clipped) < 1e-5
    print(f"step {step} norm {total_norm:.4f} is what was clipped: {same}")
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""

SKIPPED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model, limit):
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        self.model = fully_shard(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.limit = limit

    def too_large(self):
        return [
            name
            for name, parameter in self.model.named_parameters()
            if float(parameter.grad.abs().max()) > self.limit  # <- FSDP405
        ]

    def train_step(self, batch):
        self.model(batch).pow(2).mean().backward()
        names = self.too_large()
        if not names:
            self.optimizer.step()
        self.optimizer.zero_grad()
        return names


dist.init_process_group("gloo")
torch.manual_seed(0)
trainer = Trainer(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)), limit=0.1395)
torch.manual_seed(1)
print("rank", dist.get_rank(), "skips:", "2.bias" in trainer.train_step(torch.randn(4, 8)))
dist.destroy_process_group()
"""

WEIGHTS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def weight_norm(model):
    return sum(p.pow(2).sum().item() for p in model.parameters()) ** 0.5  # <- FSDP405


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    whole = weight_norm(model)
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    print(f"the same norm when sharded: {abs(weight_norm(model) - whole) < 1e-4}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

CHECKED = """\
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
for step in range(2):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    if step == 1 and dist.get_rank() == 1:
        # One bad value, in the rows that this rank holds.
        model[0].weight.grad.to_local()[0, 0] = float("nan")
    finite = True
    for p in model.parameters():
        # A step with a bad gradient is left out.
        if torch.isnan(p.grad).any():  # <- FSDP405
            finite = False
    if finite:
        optimizer.step()
    optimizer.zero_grad()
print("rank", dist.get_rank(), "took the last step:", finite)
dist.destroy_process_group()
"""

REDUCED = """\
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
total = torch.tensor(sum(p.grad.norm().item() ** 2 for p in model.parameters()))
dist.all_reduce(total)
clipped = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
assert abs(total.sqrt().item() - clipped) < 1e-5
dist.destroy_process_group()
"""

WHOLE = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).pow(2).mean().backward()
norms = []
for p in model.parameters():
    grad = p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
    norms.append(grad.norm().item())
    norm = p.grad.norm()
    if hasattr(norm, "full_tensor"):
        norm = norm.full_tensor()
    assert abs(norm.item() - norms[-1]) < 1e-5
clipped = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
assert abs(clipped.item() - sum(norm**2 for norm in norms) ** 0.5) < 1e-5
dist.destroy_process_group()
"""

STACKED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def total_norm(parameters):
    norms = [torch.linalg.vector_norm(p.grad) for p in parameters]
    return torch.linalg.vector_norm(torch.stack(norms))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).pow(2).mean().backward()
squares = 0.0
for p in model.parameters():
    squares = squares + p.grad.norm() ** 2
whole = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
assert abs(total_norm(model.parameters()).item() - whole) < 1e-5
assert abs(squares.sqrt().item() - whole) < 1e-5
dist.destroy_process_group()
"""

NOT_SHARDED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def grad_norm(module):
    return sum(p.grad.norm().item() ** 2 for p in module.parameters()) ** 0.5


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
critic = nn.Linear(8, 1)
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
critic(model(torch.randn(4, 8)).detach()).mean().backward()
print(f"norm of the critic {grad_norm(critic):.4f}")
dist.destroy_process_group()
"""


class LocalNorm(Rule):
    """A norm or sum over a sharded parameter or gradient is read on each rank for its shard alone.

    ## What it does
    Finds numbers (`.item()`, `float()`, `bool()`, a test) made of a reduction (`norm`, `sum`, `mean`,
    `max`, `min`, `any`, `all`, ...) over a parameter or gradient that `fully_shard` has sharded.

    ## Why is this bad?
    Parameters and gradients are DTensors after `fully_shard`. A reduction over one gives a DTensor that
    still waits to be put together (`Partial`); `.item()` does not do this and gives what the rank's own
    shard comes to. With two ranks `p.grad.norm().item()` was 0.138 on one and 0.126 on the other where
    the norm is 0.187: the logged norm is too small by about the root of the number of ranks, and what is
    computed from it (clipping, a skipped step) differs from rank to rank.
    `torch.isnan(p.grad).any()` is true only on the rank that holds the bad value: that rank skips
    the step and the others do not.

    The norm that `torch.nn.utils.clip_grad_norm_` returns is such a DTensor before torch 2.10: on 2.9.1 and
    two ranks `.item()` of it was 0.408 on one and 0.426 on the other, where the norm is 0.590 (what was
    clipped is right). A number made of it is found where the program certainly runs on a torch before 2.10
    (`target-torch`, or a pin or an upper bound of torch in the requirements of its project).

    What torch itself puts together is not found: arithmetic such as `p.grad.norm() ** 2` and, since torch
    2.10, `torch.stack` of norms. Local values that an `all_reduce` adds up afterwards are meant to be local.

    ## Fix safety
    Safe: `.full_tensor()` before the number is made. It is a collective; where the place may be reached
    by some ranks only, the fix is unsafe, and under a test of the rank there is none.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.tensor.html (`Partial`, `DTensor.full_tensor`)
    - pytorch/torchtitan#766, pytorch/pytorch#170862
    """

    code = "FSDP405"
    name = "local-norm"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    bad = (
        Bad(
            FLAT,
            symptom=Symptom(prints="is what was clipped: False"),
            changes=(("param_norm.item()", "param_norm.full_tensor().item()"),),
            healthy="step 2 .* is what was clipped: True",
        ),
        Bad(
            SKIPPED,
            symptom=Symptom(prints="rank 0 skips: False"),
            changes=(
                (
                    "float(parameter.grad.abs().max())",
                    "float(parameter.grad.abs().max().full_tensor())",
                ),
            ),
            healthy="rank 0 skips: True",
        ),
        Bad(WEIGHTS, symptom=Symptom(prints="the same norm when sharded: False")),
        Bad(
            CHECKED,
            symptom=Symptom(prints="rank 0 took the last step: True"),
            changes=(("torch.isnan(p.grad).any():", "torch.isnan(p.grad).any().full_tensor():"),),
            healthy="rank 0 took the last step: False",
        ),
    )
    good = (
        Good(REDUCED, why="the local values are added up by an all_reduce"),
        Good(
            WHOLE,
            why="the tensors are made whole first; the clipped norm is whole since torch 2.10",
        ),
        Good(
            STACKED,
            why="torch puts the parts together where norms are stacked (since 2.10) or squared",
        ),
        Good(NOT_SHARDED, why="the module that is measured is not the sharded one"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        for event in trace.of(PartialRead):
            if not event.partial or event.site in seen or _added_up(trace, event):
                continue
            if event.reduction == PartialRead.CLIPPED and not _lacks_whole_norms(trace):
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"`{event.reduction}` over a sharded tensor is read on each rank for its own shard",
                help="Put the parts together first, on all ranks: `.full_tensor()` before the number "
                "is made.",
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.source.source import NodeSite

        event, site = finding.events[0], finding.site
        if not isinstance(event, PartialRead) or not isinstance(site, NodeSite):
            return None
        everywhere = [e for t in program.traces for e in t.of(PartialRead) if e.site == site]
        if finding.configuration or not all(e.partial for e in everywhere):
            return None  # plain tensors come here as well
        if any(perhaps_one_rank(e) for e in everywhere):
            return None
        value: cst.CSTNode = site.node
        if event.api == "item":
            function = value.func if isinstance(value, cst.Call) else None
            if not isinstance(function, cst.Attribute):
                return None
            value = function.value
        elif event.api != "bool" or isinstance(_number_type(value), str):
            if not isinstance(value, cst.Call) or len(value.args) != 1:
                return None
            value = value.args[0].value
        if not isinstance(value, cst.Call | cst.Name | cst.Attribute):
            return None
        rewrite = Rewrite()
        rewrite.insert(site.source, site.source.span(value)[1], ".full_tensor()")
        together = all(_on_all_ranks(e) for e in everywhere)
        safety = Safety.SAFE if together else Safety.UNSAFE
        return rewrite.fix("Put the parts together", safety)


def _lacks_whole_norms(trace: Trace) -> bool:
    return trace.target is not None and trace.target.lacks(WHOLE_NORM_SINCE)


def _number_type(node: object) -> str | None:
    """The name of the builtin in `bool(x)`; None for a test that is no such call."""
    import libcst as cst

    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        return node.func.value if node.func.value in ("bool", "float", "int") else None
    return None


def _added_up(trace: Trace, event: PartialRead) -> bool:
    """Whether values are reduced or gathered over the ranks before the next backward."""
    for other in trace.after(event, BackwardRun, Collective):
        if isinstance(other, BackwardRun):
            return False
        if isinstance(other, Collective) and re.search(r"reduce|gather", other.api):
            return True
    return False


_SAME_ON_ALL = re.compile(
    r"[\w.\[\]]+ is (not )?None|[\w.]+\.requires_grad|[\w.() +]+ % [\w.]+ == \w+"
)


def _on_all_ranks(event: Event) -> bool:
    """Whether the conditions that the event stands under are the same on all ranks."""
    return all(
        guard.kind is not GuardKind.VARYING or _SAME_ON_ALL.fullmatch(guard.text)
        for guard in event.guards
    )
