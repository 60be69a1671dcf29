"""FSDP206: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Fsdp1Used, Trace
from fsdplint.trace.queries.common import asked_for, class_name, fsdp1_on_fsdp2, sharded_here

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

API = "summon_full_params"

PRINTED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    model(torch.randn(4, 4)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
with FSDP.summon_full_params(model):  # <- FSDP206
    # whole weights
    for name, parameter in model.named_parameters():
        print(name, parameter)
dist.destroy_process_group()
"""

SAMPLED = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard


class Trainer:
    def __init__(self, model, lr):
        self.model = fully_shard(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def step(self, batch):
        self.model(batch).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def nearest(self, vector):
        with FullyShardedDataParallel.summon_full_params(self.model, writeback=False):  # <- FSDP206
            scores = F.linear(vector, self.model.weight)
            return scores.argmax().item()


dist.init_process_group("gloo")
torch.manual_seed(0)
trainer = Trainer(nn.Linear(8, 32), lr=0.1)
for _ in range(2):
    trainer.step(torch.randn(4, 8))
print("nearest", trainer.nearest(torch.ones(8)))
dist.destroy_process_group()
"""

AS_METHOD = """\
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
model(torch.randn(4, 8)).pow(2).mean().backward()
with model.summon_full_params(model), torch.no_grad():  # <- FSDP206
    scale = model.up.weight @ torch.ones(8)
    print("scale", tuple(scale.shape))
dist.destroy_process_group()
"""

WRITTEN = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

PADDING = 0

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16))
for layer in model:
    fully_shard(layer)
fully_shard(model)
with FSDP.summon_full_params(model), torch.no_grad():  # <- FSDP206
    model[0].weight[PADDING].zero_()
whole = model[0].weight.full_tensor()
print("zeros", int((whole == 0).sum()))
dist.destroy_process_group()
"""

FSDP1 = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
teacher = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"))
student = fully_shard(nn.Linear(8, 8))
with FSDP.summon_full_params(teacher):
    print(teacher.weight.shape)
student(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
"""

ASKED = """\
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def show(model):
    if isinstance(model, FSDP):
        with FSDP.summon_full_params(model):
            print(model.weight)
    elif isinstance(model, FSDPModule):
        print(model.weight.full_tensor())
    with FSDP.summon_full_params(model) if isinstance(model, FSDP) else nullcontext():
        print(type(model).__name__)


dist.init_process_group("gloo")
torch.manual_seed(0)
show(fully_shard(nn.Linear(8, 8)))
dist.destroy_process_group()
"""

GATHERED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FSDPModule, fully_shard


def summon_full_params(model):
    return [p.full_tensor() for p in model.parameters()]


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
print(len(summon_full_params(model)))
for module in model.modules():
    if isinstance(module, FSDPModule):
        module.unshard()
print(model[0].weight)
for module in model.modules():
    if isinstance(module, FSDPModule):
        module.reshard()
dist.destroy_process_group()
"""


class SummonOnFsdp2(Rule):
    """`summon_full_params` is used on a model that `fully_shard` shards.

    ## What it does
    Finds `FSDP.summon_full_params(model)` where `fully_shard` shards the model.

    ## Why is this bad?
    It looks for FSDP1's wrappers in the model, finds none and gathers nothing, without a word. In the block the
    parameters are what they were: DTensors with this rank's part. What is then printed or measured is a part;
    computing with a plain tensor ends in "aten.mm.default got mixed torch.Tensor and DTensor"; and what is
    written to a row of a weight is lost (`weight[0].zero_()` left no zero in it). Called on the model itself, it ends
    in

        AttributeError: 'FSDPNet' object has no attribute 'summon_full_params'

    ## Fix safety
    Unsafe: `unshard()` before and `reshard()` after the block, of every module that is sharded by itself. Only where
    the block's own lines read and do not write parameters (what is written while they are gathered is lost), and
    not with `offload_to_cpu`, `rank0_only` or `with_grads`. Between the two the whole model is on every rank.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://github.com/pytorch/pytorch/issues/137129 (it was left out of FSDP2 on purpose)
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`FSDPModule.unshard`)
    """

    code = "FSDP206"
    name = "summon-on-fsdp2"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    fix_since = "2.6"
    bad = (
        Bad(
            PRINTED,
            symptom=Symptom(prints=r"^0\.weight DTensor\(local_tensor="),
            changes=(
                (
                    """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
""",
                    "from torch.distributed.fsdp import FSDPModule, fully_shard\n",
                ),
                (
                    """\
with FSDP.summon_full_params(model):
    # whole weights
    for name, parameter in model.named_parameters():
        print(name, parameter)
""",
                    """\
for module in model.modules():
    if isinstance(module, FSDPModule):
        module.unshard()
# whole weights
for name, parameter in model.named_parameters():
    print(name, parameter)
for module in model.modules():
    if isinstance(module, FSDPModule):
        module.reshard()
""",
                ),
            ),
            healthy=r"^0\.weight Parameter containing:",
        ),
        Bad(
            SAMPLED,
            symptom=Symptom(raises=r"aten\.\w+\.default got mixed torch\.Tensor and DTensor"),
            changes=(
                (
                    "from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard",
                    "from torch.distributed.fsdp import fully_shard",
                ),
                (
                    """\
        with FullyShardedDataParallel.summon_full_params(self.model, writeback=False):
            scores = F.linear(vector, self.model.weight)
            return scores.argmax().item()
""",
                    """\
        self.model.unshard()
        try:
            scores = F.linear(vector, self.model.weight)
            return scores.argmax().item()
        finally:
            self.model.reshard()
""",
                ),
            ),
            healthy=r"^nearest \d",
        ),
        Bad(
            AS_METHOD,
            symptom=Symptom(raises=r"'FSDPNet' object has no attribute 'summon_full_params'"),
            changes=(
                (
                    "from torch.distributed.fsdp import fully_shard",
                    "from torch.distributed.fsdp import FSDPModule, fully_shard",
                ),
                (
                    """\
with model.summon_full_params(model), torch.no_grad():
    scale = model.up.weight @ torch.ones(8)
    print("scale", tuple(scale.shape))
""",
                    """\
for module in model.modules():
    if isinstance(module, FSDPModule):
        module.unshard()
with torch.no_grad():
    scale = model.up.weight @ torch.ones(8)
    print("scale", tuple(scale.shape))
for module in model.modules():
    if isinstance(module, FSDPModule):
        module.reshard()
""",
                ),
            ),
            healthy=r"^scale \(32,\)",
        ),
        Bad(WRITTEN, symptom=Symptom(prints="^zeros 0$")),
    )
    good = (
        Good(FSDP1, why="the model that is summoned is FSDP1's"),
        Good(ASKED, why="the program asks whether it is FSDP1's"),
        Good(GATHERED, why="the parameters are gathered in FSDP2's ways"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            if event.api.removeprefix("FSDP.") != API or asked_for(event, API):
                continue
            if event.module is None or not fsdp1_on_fsdp2(trace, event):
                continue
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"`{API}` is FSDP1's and gathers nothing of `{name}`, which `fully_shard` shards",
                help="To read the whole parameters: `unshard()` and `reshard()` of every FSDP module, or "
                "`full_tensor()` of one parameter. To write them: `set_model_state_dict` with "
                "`full_state_dict=True`.",
                because=sharded_here(trace, event.module, event),
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.summon import rewrite_summon
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        event = finding.events[0]
        if found is None or event.ranks.partial or not isinstance(event, Fsdp1Used):
            return None
        several = _sharded_parts(program, event)
        if several is None:
            return None
        rewrite = Rewrite()
        if not rewrite_summon(rewrite, *found, several=several):
            return None
        return rewrite.fix("Gather with `unshard()`", Safety.UNSAFE)


def _sharded_parts(program: Program, event: Fsdp1Used) -> bool | None:
    """Whether parts of the model are sharded by themselves; None where the model itself is not.

    Also None where another trace has another kind of model there.
    """
    several = False
    for trace in program.traces:
        for other in trace.of(Fsdp1Used):
            if other.site != event.site:
                continue
            if other.module is None or not fsdp1_on_fsdp2(trace, other):
                return None
            known = trace.shardings(other)
            root = trace.unwrapped(other.module)
            if root not in known:
                return None
            parts = [part for part in trace.submodules(root) if part != root]
            unknown = any(not trace.modules[part].children_known for part in (root, *parts))
            several = several or unknown or any(part in known for part in parts)
    return several
