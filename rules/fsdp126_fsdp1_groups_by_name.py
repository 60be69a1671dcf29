"""FSDP126: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import OptimizerBuilt, Trace, Wrapped
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.wrappers import shards, uses_original_parameters

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

BY_NAME = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4))
model = FSDP(model, device_id=torch.device("cpu"))
no_decay = ["bias", "norm.weight"]
groups = [
    {
        "params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)],
        "weight_decay": 0.1,
    },
    {
        "params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)],
        "weight_decay": 0.0,
    },
]
optimizer = torch.optim.AdamW(groups, lr=1e-2)  # <- FSDP126
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
spared = sum(p.numel() > 0 for p in optimizer.param_groups[1]["params"])
print("something is spared from weight decay:", spared > 0)
dist.destroy_process_group()
"""

BY_DIMENSIONS = """\
import inspect

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.norm = nn.LayerNorm(4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(self.norm(self.up(x)).relu())


def configure_optimizer(model, weight_decay, lr):
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    decay = [p for n, p in parameters.items() if p.dim() >= 2]
    rest = [p for n, p in parameters.items() if p.dim() < 2]
    groups = [
        {"params": decay, "weight_decay": weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    print(f"decayed tensors: {len(decay)}, others: {len(rest)}")
    fused = "fused" in inspect.signature(torch.optim.AdamW).parameters and torch.cuda.is_available()
    return torch.optim.AdamW(groups, lr=lr, fused=fused)  # <- FSDP126


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = FullyShardedDataParallel(
        Net(),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )
    optimizer = configure_optimizer(model, weight_decay=0.1, lr=1e-3)
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

IN_A_LOOP = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
        self.model = FSDP(
            self.model,
            use_orig_params=False,
            device_id=torch.device("cpu"),
        )
        decay, no_decay = [], []
        for name, parameter in self.model.named_parameters():
            if not parameter.requires_grad:
                continue
            if name.endswith(".bias"):
                no_decay.append(parameter)
            else:
                decay.append(parameter)
        self.without_decay = len(no_decay)
        self.optimizer = torch.optim.SGD(  # <- FSDP126
            [
                {"params": decay, "weight_decay": 1e-2},
                {"params": no_decay, "weight_decay": 0.0},
            ],
            lr=0.1,
        )

    def step(self, batch):
        self.model(batch).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


dist.init_process_group("gloo")
trainer = Trainer()
trainer.step(torch.randn(4, 8))
print("biases in a group of their own:", trainer.without_decay > 0)
dist.destroy_process_group()
"""

ORIGINAL = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
matrices = {name for name, p in model.named_parameters() if p.dim() >= 2}
model = FSDP(model, use_orig_params=True, device_id=torch.device("cpu"))


def clean(name):
    return name.replace("_fsdp_wrapped_module.", "")


decay = [p for n, p in model.named_parameters() if "bias" not in n]
rest = [p for n, p in model.named_parameters() if "bias" in n]
same = [p for n, p in model.named_parameters() if clean(n) in matrices]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-2)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
print(len(decay), len(rest), len(same))
dist.destroy_process_group()
"""

BEFORE = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard


def groups(model):
    return [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]


def step(model, optimizer):
    model(torch.ones(4, 8)).pow(2).mean().backward()
    optimizer.step()
    print([len(group["params"]) for group in optimizer.param_groups])


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Linear(8, 4)
optimizer = torch.optim.AdamW(groups(net), lr=1e-2)
step(FSDP(net, use_orig_params=True, device_id=torch.device("cpu")), optimizer)
other = fully_shard(nn.Linear(8, 4))
step(other, torch.optim.AdamW(groups(other), lr=1e-2))
dist.destroy_process_group()
"""

BY_MODULE = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.backbone(x).relu())


dist.init_process_group("gloo")
torch.manual_seed(0)
policy = ModuleWrapPolicy({nn.Linear})
model = FSDP(Net(), auto_wrap_policy=policy, device_id=torch.device("cpu"))
head = [p for n, p in model.named_parameters() if "head" in n]
rest = [p for n, p in model.named_parameters() if "head" not in n]
optimizer = torch.optim.SGD([{"params": head, "lr": 0.1}, {"params": rest}], lr=0.01)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
print(len(head), len(rest))
dist.destroy_process_group()
"""


class Fsdp1GroupsByName(Rule):
    """The parameters of an FSDP1 model are put into groups by names or shapes that FSDP1 has changed.

    ## What it does
    Finds optimizers over a wrapped model's parameters that were chosen

    - by what a parameter itself is called (`"bias" in name`), where FSDP1 runs without
      `use_orig_params=True`, which is its default;
    - by the number of their dimensions (`p.dim() >= 2`, `p.ndim`), where FSDP1 shards, also with
      `use_orig_params=True`.

    It says nothing about choices by the name of a module that is wrapped by itself, and none about
    groups that were made before wrapping.

    ## Why is this bad?
    Without `use_orig_params=True` the wrapper has one flat parameter per unit, called
    `_fsdp_wrapped_module._flat_param`, which holds weights and biases alike. With it the names are kept,
    but a sharded parameter is a one-dimensional part of the original. So one of the groups is empty,
    and all parameters are in the other one: biases and norms get the weight decay that they were to be
    spared, or no parameter gets any. There is no error.

    ## Fix safety
    Unsafe, for choices by name only: `use_orig_params=True` lets the names be what they were. Optimizer
    states that were saved without it are laid out in another way. For choices by dimensions, note the names
    of the parameters before wrapping, and choose by these (with `use_orig_params=True`).

    ## Since
    torch 2.0, which has `use_orig_params`. FSDP2 keeps names and dimensions.

    ## References
    - torch docs, `FullyShardedDataParallel`, `use_orig_params`.
    """

    code = "FSDP126"
    name = "fsdp1-groups-by-name"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    bad = (
        Bad(
            BY_NAME,
            symptom=Symptom(prints="something is spared from weight decay: False"),
            changes=(
                (
                    'model = FSDP(model, device_id=torch.device("cpu"))',
                    'model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)',
                ),
            ),
            healthy="something is spared from weight decay: True",
        ),
        Bad(
            BY_DIMENSIONS,
            symptom=Symptom(prints="decayed tensors: 0, others: 6"),
        ),
        Bad(
            IN_A_LOOP,
            symptom=Symptom(prints="biases in a group of their own: False"),
            changes=(("use_orig_params=False", "use_orig_params=True"),),
            healthy="biases in a group of their own: True",
        ),
    )
    good = (
        Good(ORIGINAL, why="by name with use_orig_params=True, and by names noted before wrapping"),
        Good(BEFORE, why="the groups were made before wrapping; FSDP2 keeps the dimensions"),
        Good(BY_MODULE, why="units of their own keep the names of their modules"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for built in trace.of(OptimizerBuilt):
            for event in trace.before(built, Wrapped):
                if event.module in built.modules:
                    reason = _reason(event, built)
                    if reason:
                        yield self._finding(trace, built, event, reason)
                        break

    def _finding(self, trace: Trace, built: OptimizerBuilt, event: Wrapped, reason: str) -> Finding:
        return self.finding(
            built,
            f"the parameters of `{class_name(trace, event.module)}` are put into groups although "
            f"{reason}",
            help="Wrap with `use_orig_params=True`, and choose by names, which it keeps; by shapes only "
            "before wrapping.",
            because=[(event, "wrapped here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.fixes.wrapper_options import rely_on_wrapping, set_option

        built, wrapped = finding.events[0], finding.events[1]
        found = call_at(wrapped.site)
        if not isinstance(built, OptimizerBuilt) or built.chosen_by != (LEAF_NAME,):
            return None
        rewrite = Rewrite()
        if found is None or not set_option(rewrite, *found, "use_orig_params", "True"):
            return None
        rely_on_wrapping(rewrite, [wrapped])
        return rewrite.fix("Wrap with use_orig_params=True", Safety.UNSAFE)


DIMENSIONS, LEAF_NAME = "dimensions", "leaf name"


def _reason(event: Wrapped, built: OptimizerBuilt) -> str:
    """Why the choice of the groups is wrong; "" where it is not known to be."""
    original = uses_original_parameters(event)
    if original is False and LEAF_NAME in built.chosen_by:
        return "FSDP1 without `use_orig_params=True` has flat parameters only, without their names"
    if original is False and (DIMENSIONS in built.chosen_by or built.empty_groups):
        return "FSDP1 without `use_orig_params=True` has flat parameters only, of one dimension"
    if original and shards(event) and (DIMENSIONS in built.chosen_by or built.empty_groups):
        return "FSDP1 leaves each rank with parts of them that have one dimension"
    return ""
