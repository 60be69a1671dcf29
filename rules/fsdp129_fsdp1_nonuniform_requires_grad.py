"""FSDP129: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace, Wrapped
from fsdplint.trace.queries.common import class_name

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FROZEN_BACKBONE = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Classifier()
for parameter in model.backbone.parameters():
    parameter.requires_grad = False
model = FSDP(model, device_id=torch.device("cpu"))  # <- FSDP129
optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-2)
for step in range(2):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""

ADAPTERS = """\
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class Adapted(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.base = nn.Linear(width, width)
        self.base.requires_grad_(False)
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.projection = Adapted(width, rank=2)

    def forward(self, x):
        return x + self.projection(x).relu()


def build():
    model = nn.Sequential(Block(8), Block(8))
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    return FullyShardedDataParallel(  # <- FSDP129
        model,
        auto_wrap_policy=policy,
        device_id=torch.device("cpu"),
    )


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
    print("trained")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

APART = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Backbone(nn.Sequential):
    pass


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.backbone.requires_grad_(False)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
cpu = torch.device("cpu")
one = FSDP(Classifier(), auto_wrap_policy=ModuleWrapPolicy({Backbone}), device_id=cpu)
two = Classifier()
two.backbone = FSDP(two.backbone, device_id=cpu)
two = FSDP(two, device_id=cpu)
for model in (one, two):
    model(torch.ones(4, 8)).sum().backward()
print("trained")
dist.destroy_process_group()
"""

ALLOWED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def classifier():
    backbone = nn.Linear(8, 16)
    for parameter in backbone.parameters():
        parameter.requires_grad_(False)
    return nn.Sequential(backbone, nn.ReLU(), nn.Linear(16, 2))


dist.init_process_group("gloo")
torch.manual_seed(0)
cpu = torch.device("cpu")
original = FSDP(classifier(), use_orig_params=True, device_id=cpu)
original(torch.ones(4, 8)).sum().backward()
net = classifier()
ignoring = FSDP(net, ignored_modules=[net[0]], device_id=cpu)
ignoring(torch.ones(4, 8)).sum().backward()
teacher = FSDP(classifier().requires_grad_(False), device_id=cpu)
net = classifier().requires_grad_(False)
net.requires_grad_(True)
student = FSDP(net, device_id=cpu)
student(teacher(torch.ones(4, 8)).repeat(1, 4)).sum().backward()
print("trained")
dist.destroy_process_group()
"""


FSDP2_MIXED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
for parameter in model[0].parameters():
    parameter.requires_grad_(False)
fully_shard(model)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
for _ in range(2):
    model(torch.ones(4, 8)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


class Fsdp1NonuniformRequiresGrad(Rule):
    """Frozen and trainable parameters come into one flat parameter of FSDP1.

    ## What it does
    Finds `FullyShardedDataParallel(model, ...)` without `use_orig_params=True` over a model of which a
    part is frozen, where frozen and trainable parameters share a unit: what is not wrapped by itself, or one
    of the modules that the policy wraps.

    It says nothing where it does not see what the policy wraps, or which parameters are frozen.

    ## Why is this bad?
    Without `use_orig_params=True` all parameters of a unit become one, which has a gradient or has none:

        ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`

    and with `ModuleWrapPolicy`

        ValueError: 0 has both parameters with requires_grad=True and False.

    ## Fix safety
    Safe: `use_orig_params=True`, as the program does not run otherwise. It costs memory for gradients
    that nobody needs; a frozen part that is wrapped by itself costs none.

    ## Since
    torch 2.0, which has `use_orig_params`. FSDP2 has no flat parameters.

    ## References
    - torch docs, `FullyShardedDataParallel`, `use_orig_params`.
    - mosaicml/llm-foundry#414.
    """

    code = "FSDP129"
    name = "fsdp1-nonuniform-requires-grad"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    bad = (
        Bad(
            FROZEN_BACKBONE,
            symptom=Symptom(raises="Must flatten tensors with uniform `requires_grad`"),
            changes=(
                (
                    'FSDP(model, device_id=torch.device("cpu"))',
                    'FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)',
                ),
            ),
            healthy=r"loss \d",
        ),
        Bad(
            ADAPTERS,
            symptom=Symptom(raises="Must flatten tensors with uniform `requires_grad`"),
            changes=(
                (
                    '        device_id=torch.device("cpu"),\n',
                    '        device_id=torch.device("cpu"),\n        use_orig_params=True,\n',
                ),
            ),
            healthy="trained",
        ),
    )
    good = (
        Good(APART, why="the frozen part is a unit of its own, by the policy or by hand"),
        Good(ALLOWED, why="use_orig_params=True, an ignored part, and models of one kind"),
        Good(FSDP2_MIXED, why="FSDP2 has no flat parameters"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Wrapped):
            if event.mixes:
                yield self.finding(
                    event,
                    f"frozen and trainable parameters of `{class_name(trace, event.inner)}` come into one "
                    f"flat parameter, which FSDP1 refuses",
                    help="Wrap with `use_orig_params=True`, or wrap the frozen part by itself.",
                )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.fixes.wrapper_options import set_option

        found = call_at(finding.site)
        rewrite = Rewrite()
        if found is None or not set_option(rewrite, *found, "use_orig_params", "True"):
            return None
        rewrite.relies_on(*found)
        return rewrite.fix("Wrap with use_orig_params=True", Safety.SAFE)
