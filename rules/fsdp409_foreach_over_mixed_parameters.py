"""FSDP409: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import MixedParameters, Sharded, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FOREACH = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
# The head is small: it stays whole on every rank.
fully_shard(model, ignored_params=set(model[2].parameters()))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)  # <- FSDP409
for step in range(2):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    for parameter in model[2].parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()
    optimizer.zero_grad()
print("trained")
dist.destroy_process_group()
"""

CLIPPED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 32)
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class Trainer:
    def __init__(self, model):
        self.model = fully_shard(model, ignored_params=set(model.head.parameters()))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train_step(self, batch):
        self.model(batch).pow(2).mean().backward()
        for parameter in self.model.head.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # <- FSDP409
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(Net())
    for _ in range(2):
        trainer.train_step(torch.randn(4, 8))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

FUSED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def build():
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    ignored = list(model[2].parameters())
    fully_shard(model[0])
    fully_shard(model, ignored_params=set(ignored))
    return model


dist.init_process_group("gloo")
torch.manual_seed(0)
model = build()
optimizer = torch.optim.AdamW(
    model.parameters(),
    lr=1e-2,
)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
"""

GROUPS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
fully_shard(model, ignored_params=set(model[2].parameters()))
sharded = [p for p in model.parameters() if isinstance(p, DTensor)]
whole = [p for p in model.parameters() if not isinstance(p, DTensor)]
optimizer = torch.optim.AdamW([{"params": sharded}, {"params": whole}], lr=1e-2, foreach=True)
model(torch.randn(4, 8)).pow(2).mean().backward()
torch.nn.utils.clip_grad_norm_(sharded, 1.0)
optimizer.step()
dist.destroy_process_group()
"""

FROZEN = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
model[0].requires_grad_(False)
fully_shard(model, ignored_params=set(model[0].parameters()))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
model(torch.randn(4, 8)).pow(2).mean().backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
dist.destroy_process_group()
"""


class ForeachOverMixedParameters(Rule):
    """Sharded parameters and those that `ignored_params` left whole go into one foreach operation.

    ## What it does
    Finds `torch.nn.utils.clip_grad_norm_(model.parameters(), ...)` and optimizers with `foreach=True` or
    `fused=True` over `model.parameters()`, where `fully_shard` was given `ignored_params` that are
    trained.

    ## Why is this bad?
    The parameters that FSDP shards are DTensors, the ignored ones plain tensors. A foreach or fused
    operation takes either, not both; the first step ends with

        RuntimeError: aten._foreach_mul_.Scalar got mixed torch.Tensor and DTensor, need to convert
        all torch.Tensor to DTensor before calling distributed operators!

    (`aten._fused_adamw_.default` for `fused=True`, `aten._foreach_norm.Scalar` in `clip_grad_norm_`,
    which fails with `foreach=False` as well.)

    ## Fix safety
    Unsafe: an optimizer with `foreach=True` becomes one with `foreach=False`, which steps one parameter
    after the other. Where the norm is clipped, and for `fused=True`, you have to say what is meant:
    parameter groups of one kind each, and a norm of both kinds put together by hand.

    ## Since
    torch 2.7, where `ignored_params` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`ignored_params`)
    - pytorch/pytorch#183207
    """

    code = "FSDP409"
    name = "foreach-over-mixed-parameters"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    bad = (
        Bad(
            FOREACH,
            symptom=Symptom(raises=r"aten\._foreach_\w+\.\w+ got mixed torch\.Tensor and DTensor"),
            changes=(("foreach=True", "foreach=False"),),
            healthy="trained",
        ),
        Bad(
            CLIPPED,
            symptom=Symptom(raises=r"aten\._foreach_norm\.Scalar got mixed torch\.Tensor and DTe"),
        ),
    )
    good = (
        Good(FUSED, why="without foreach or fused the optimizer takes one parameter at a time"),
        Good(GROUPS, why="each group holds parameters of one kind"),
        Good(FROZEN, why="what is ignored is frozen and has no gradients"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        sharded = [e for e in trace.of(Sharded) if "ignored_params" in e.options]
        seen = set()
        for event in trace.of(MixedParameters):
            before = [e for e in sharded if e.index < event.index]
            if not before or event.site in seen:
                continue
            seen.add(event.site)
            way = {"foreach": "`foreach=True`", "fused": "`fused=True`"}.get(event.api)
            yield self.finding(
                event,
                f"{way or f'`{event.api}`'} takes sharded parameters and those that "
                f"`ignored_params` left whole together, which fails",
                help="Put them into parameter groups of their own, or step without foreach."
                if way
                else "Clip the sharded parameters and the whole ones by a norm of both that is put "
                "together by hand.",
                because=[(before[-1], "parameters are left out here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at

        found, event = call_at(finding.site), finding.events[0]
        if found is None or not isinstance(event, MixedParameters) or event.api != "foreach":
            return None
        source, call = found
        for arg in call.args:
            name = arg.keyword.value if arg.keyword is not None else ""
            if name == "foreach" and isinstance(arg.value, cst.Name) and arg.value.value == "True":
                rewrite = Rewrite()
                rewrite.replace(source, arg.value, "False")
                return rewrite.fix("Step one parameter after the other", Safety.UNSAFE)
        return None
