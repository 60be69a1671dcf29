"""FSDP407: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import ScalerBuilt, ScalerStepped, Trace, Wrapped
from fsdplint.trace.queries.common import class_name, optimizer_of
from fsdplint.trace.queries.wrappers import outermost, shards, wrappers_of

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FLAT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(
    nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)), device_id=torch.device("cpu")
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17)  # <- FSDP407
for step in range(3):
    inputs, targets = 0.05 * torch.randn(16, 8), 1 + torch.randn(16, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(inputs), targets.half())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()

scales = [None] * dist.get_world_size()
dist.all_gather_object(scales, scaler.get_scale())
print("the ranks scale alike:", scales[0] == scales[1])
dist.destroy_process_group()
"""

TRAINER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.amp import GradScaler, autocast
from torch.distributed.fsdp import FullyShardedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class Trainer:
    def __init__(self, scale=2.0**17):
        torch.manual_seed(0)
        self.scaler = GradScaler(device="cpu", init_scale=scale)  # <- FSDP407
        self.model = FullyShardedDataParallel(
            Net(), use_orig_params=True, device_id=torch.device("cpu")
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def train_step(self, inputs, targets):
        with autocast("cpu", dtype=torch.float16):
            loss = nn.functional.mse_loss(self.model(inputs), targets.half())
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        self.model.clip_grad_norm_(1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    trainer = Trainer()
    trainer.train_step(0.05 * torch.randn(16, 8), 1 + torch.randn(16, 4))
    scales = [None] * dist.get_world_size()
    dist.all_gather_object(scales, trainer.scaler.get_scale())
    print("one scale:", len(set(scales)) == 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

SHARDED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def train(model, scaler):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(torch.ones(4, 8)).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print("scale", scaler.get_scale())


dist.init_process_group("gloo")
torch.manual_seed(0)
cpu = torch.device("cpu")
train(FSDP(nn.Linear(8, 4), device_id=cpu), ShardedGradScaler("cpu", init_scale=1024.0))
whole = FSDP(nn.Linear(8, 4), sharding_strategy=ShardingStrategy.NO_SHARD, device_id=cpu)
train(whole, torch.amp.GradScaler("cpu", init_scale=1024.0))
dist.destroy_process_group()
"""

SWITCHED_OFF = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dtype = "bfloat16"
dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", enabled=(dtype == "float16"))
with torch.autocast("cpu", dtype=getattr(torch, dtype)):
    loss = model(torch.ones(4, 8)).float().pow(2).mean()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""

OTHER_MODEL = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
teacher = FSDP(nn.Linear(8, 4).requires_grad_(False), device_id=torch.device("cpu"))
student = fully_shard(nn.Linear(8, 4))
optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
inputs = torch.ones(4, 8)
with torch.autocast("cpu", dtype=torch.float16):
    with torch.no_grad():
        targets = teacher(inputs)
    loss = nn.functional.mse_loss(student(inputs).float(), targets.float())
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
print("scale", scaler.get_scale())
dist.destroy_process_group()
"""


class PlainGradScalerWithFsdp1(Rule):
    """A plain `GradScaler` steps the optimizer of a model that FSDP1 shards.

    ## What it does
    Finds `torch.amp.GradScaler` (and `torch.cuda.amp.GradScaler`) whose `step` is called with an
    optimizer over the parameters of a model that `FullyShardedDataParallel` wraps with a strategy that
    shards (all but `NO_SHARD`).

    It says nothing where `enabled` is false or not known.

    ## Why is this bad?
    The scaler skips a step and lowers the scale when it finds an infinite gradient. Under FSDP1 each
    rank looks at its own part of the gradients only, and an overflow in one part is seen by one rank: that
    rank skips the step, the others take it, and from then on the ranks scale their losses differently.
    After three steps the scales of two ranks were 131072 and 16384, without an error. What is reduced then
    is a sum of gradients of different scale, and one part of each parameter was trained by other steps than
    the rest.

    ## Fix safety
    Safe: `ShardedGradScaler` of `torch.distributed.fsdp.sharded_grad_scaler` lets all ranks agree on an
    overflow; it is a `GradScaler` otherwise. There is no fix for arguments whose position is another one in
    it, where the model is wrapped in some configurations only, and for a wrapper with a process group of
    its own.

    ## Since
    Always for FSDP1. FSDP2's gradients are DTensors, for which the plain scaler is right since torch 2.5.

    ## References
    - torch docs, `torch.distributed.fsdp.sharded_grad_scaler`.
    - https://github.com/pytorch/pytorch/pull/132816
    - facebookresearch/fairscale#754
    """

    code = "FSDP407"
    name = "plain-grad-scaler-with-fsdp1"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    bad = (
        Bad(
            FLAT,
            symptom=Symptom(prints="the ranks scale alike: False"),
            changes=(
                (
                    "import FullyShardedDataParallel as FSDP\n",
                    "import FullyShardedDataParallel as FSDP\n"
                    "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\n",
                ),
                ("torch.amp.GradScaler(", "ShardedGradScaler("),
            ),
            healthy="the ranks scale alike: True",
        ),
        Bad(
            TRAINER,
            symptom=Symptom(prints="one scale: False"),
            changes=(
                ("import GradScaler, autocast\n", "import autocast\n"),
                (
                    "import FullyShardedDataParallel\n",
                    "import FullyShardedDataParallel\n"
                    "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\n",
                ),
                ("= GradScaler(", "= ShardedGradScaler("),
            ),
            healthy="one scale: True",
        ),
    )
    good = (
        Good(SHARDED, why="FSDP1's own scaler, and NO_SHARD, where every rank has whole gradients"),
        Good(SWITCHED_OFF, why="a scaler that is switched off does nothing"),
        Good(OTHER_MODEL, why="the optimizer is that of another model, which FSDP2 shards"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for built in trace.of(ScalerBuilt):
            if built.class_name != "GradScaler" or built.enabled is not True:
                continue
            for stepped in trace.after(built, ScalerStepped):
                if stepped.scaler != built.scaler:
                    continue
                found = _sharding(trace, stepped)
                if found is not None:
                    yield self._finding(trace, built, stepped, *found)
                    break

    def _finding(
        self, trace: Trace, built: ScalerBuilt, stepped: ScalerStepped, module: str, by: Wrapped
    ) -> Finding:
        return self.finding(
            built,
            f"each rank looks for overflows in its own part of the gradients of "
            f"`{class_name(trace, module)}`, which FSDP1 shards, and nothing makes the ranks agree",
            help="Use `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler`.",
            because=[(by, "sharded here"), (stepped, "stepped here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.fixes.wrapper_options import forget_name, rely_on_wrapping

        found = call_at(finding.site)
        wrapper = finding.events[1]
        if found is None or finding.configuration or not isinstance(wrapper, Wrapped):
            return None
        if any(option in wrapper.options for option in ("process_group", "**")):
            return None
        source, call = found
        positional = [arg for arg in call.args if arg.keyword is None]
        # torch.cuda.amp's has no device in front; the factors come in another order.
        if any(arg.star for arg in call.args) or len(positional) > _alike(program, call):
            return None
        rewrite = Rewrite()
        name = rewrite.need_import(
            source,
            "torch.distributed.fsdp.sharded_grad_scaler",
            "ShardedGradScaler",
            at=call,
        )
        rewrite.replace(source, call.func, name)
        forget_name(rewrite, source, call.func)
        rely_on_wrapping(rewrite, finding.events)
        return rewrite.fix("Scale with ShardedGradScaler", Safety.SAFE)


def _sharding(trace: Trace, stepped: ScalerStepped) -> tuple[str, Wrapped] | None:
    """The module that the optimizer updates, and the wrapper that shards it."""
    optimizer = optimizer_of(trace, stepped.optimizer)
    for module in optimizer.modules if optimizer is not None else ():
        wrappers = wrappers_of(trace, module, stepped)
        if wrappers and all(map(shards, wrappers)):
            return module, outermost(trace, wrappers)[0]
    return None


def _alike(program: Program, call: object) -> int:
    """How many positional arguments mean the same to both scalers."""
    import libcst as cst

    from fsdplint.interpreter.values import Symbol

    assert isinstance(call, cst.Call)
    values = program.values(call.func)
    names = {value.name for value in values if isinstance(value, Symbol)}
    return 2 if names == {"torch.amp.GradScaler"} else 0
