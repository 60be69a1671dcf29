"""FSDP103: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Event,
    OptimizerBuilt,
    Site,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.groups import Groups, Shard, shard_events, sharded_by
from fsdplint.trace.queries.common import first_step

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class OptimizerBeforeShard(Rule):
    """An optimizer is built over parameters that sharding replaces afterwards.

    ## What it does
    Finds optimizers that are built from a module's parameters before `fully_shard` (or FSDP1 without
    `use_orig_params=True`) is applied to the module, to a part of it or to its parent, and that are
    stepped after that.

    The same goes for an optimizer that is built later from a list that was made before.

    An optimizer that is replaced, or whose parameters are, before it is stepped is fine; so is one over the inner module of an
    FSDP1 wrapper that is built after wrapping, and FSDP1 with `use_orig_params=True`, which keeps the
    parameter objects.

    ## Why is this bad?
    Sharding puts new parameters into the module; the optimizer holds the old ones, which never get a
    gradient. There is no error: `optimizer.step()` does nothing, the loss of a fixed batch stays the
    same to the last digit, and the unsharded parameters stay in memory. Where only some modules
    are sharded later, only these stop learning.

    ## Fix safety
    Safe: the optimizer's statement moves to right after the last sharding, with what is made of it in
    between (a scheduler). There is no fix where something else in between uses the optimizer, or
    where both do not stand in statements of one block.

    Where the optimizer's groups were chosen by names or dimensions of the parameters, which FSDP1
    changes, the fix is unsafe and another one: `use_orig_params=True` keeps the parameters that the
    optimizer holds.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, user contract: the optimizer has to be
      initialised with the DTensor parameters.
    - huggingface/accelerate#3209 and #3256.
    """

    code = "FSDP103"
    name = "optimizer-before-shard"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for built in trace.of(OptimizerBuilt):
            if not built.complete or built.site in seen:
                continue
            if built.stale:
                yield from self._stale(groups, built, seen)
                continue
            later = shard_events(trace, after=built)
            replacing = first(event for event in later if groups.replaces(event, built.modules))
            if replacing is None:
                continue
            stepped = first_step(trace, built, after=replacing)
            if stepped is None or _built_again(trace, built, before=replacing):
                continue
            last = [e for e in later if e.index < stepped.index and _concerns(trace, e, built)][-1]
            seen.add(built.site)
            yield self._finding(groups, built, last, stepped)

    def _stale(self, groups: Groups, built: OptimizerBuilt, seen: set[Site]) -> Iterator[Finding]:
        """Built after sharding, but over parameters that were taken from the model before."""
        trace = groups.trace
        shards = shard_events(trace, before=built)
        around = [shard for shard in shards if _concerns(trace, shard, built)]
        stepped = first_step(trace, built, after=built)
        if around and stepped is not None:
            seen.add(built.site)
            how = "FSDP" if isinstance(around[-1], Wrapped) else "fully_shard"
            yield self.finding(
                built,
                f"`{built.class_name or 'the optimizer'}` gets parameters of "
                f"{groups.name(built.stale[0])} that were taken before `{how}` replaced them, so "
                f"that it never updates the model",
                help="Take the parameters from the model after the last sharding.",
                because=[(around[-1], "parameters replaced here"), (stepped, "stepped here")],
            )

    def _finding(
        self, groups: Groups, built: OptimizerBuilt, event: Shard, stepped: Event
    ) -> Finding:
        module = event.inner if isinstance(event, Wrapped) else event.module
        how = "FSDP" if isinstance(event, Wrapped) else "fully_shard"
        return self.finding(
            built,
            f"`{built.class_name or 'the optimizer'}` is built before `{how}` replaces the parameters "
            f"of {groups.name(module)}, so that it never updates them",
            help="Build the optimizer after the last sharding of the model.",
            because=[(event, "parameters replaced here"), (stepped, "stepped here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.moves import move_after
        from fsdplint.edits.places import common_block
        from fsdplint.edits.rewrite import Rewrite

        built, last = finding.events[0], finding.events[1]
        if last.index < built.index:
            return None
        if isinstance(built, OptimizerBuilt) and isinstance(last, Wrapped) and built.chosen_by:
            return _keep_parameters(last, program)
        place = common_block(built, last)
        if place is None:
            return None
        rewrite = Rewrite()
        if not move_after(rewrite, program, place):
            return None
        return rewrite.fix("Build the optimizer after sharding", Safety.SAFE)

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)  # <- FSDP103
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)

inputs, targets = torch.randn(16, 4), torch.randn(16, 1)
losses = []
for step in range(4):
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
dist.destroy_process_group()
""",
            symptom=Symptom(prints=r"loss (\d\.\d+) -> \1\b"),
            changes=(
                (
                    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)\n"
                    "for layer in (model[0], model[2]):\n"
                    "    fully_shard(layer)\n"
                    "fully_shard(model)\n",
                    "for layer in (model[0], model[2]):\n"
                    "    fully_shard(layer)\n"
                    "fully_shard(model)\n"
                    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)\n",
                ),
            ),
            healthy=r"loss (\d\.\d+) -> (?!\1)\d",
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        # plain SGD is enough here
        self.optimizer = SGD(  # <- FSDP103
            [{"params": self.model.parameters(), "weight_decay": 0.1}],
            lr=lr,
        )
        self.scheduler = StepLR(self.optimizer, step_size=10)
        self.criterion = nn.MSELoss()
        self.shard()

    def shard(self):
        fully_shard(self.model)

    def fit(self, inputs, targets, steps=4):
        losses = []
        for _ in range(steps):
            loss = self.criterion(self.model(inputs), targets)
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            losses.append(loss.item())
        return losses


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(nn.Linear(4, 1), lr=0.1)
    losses = trainer.fit(torch.randn(16, 4), torch.randn(16, 1))
    print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
    dist.destroy_process_group()
""",
            symptom=Symptom(prints=r"loss (\d\.\d+) -> \1\b"),
            changes=(
                (
                    """\
        # plain SGD is enough here
        self.optimizer = SGD(
            [{"params": self.model.parameters(), "weight_decay": 0.1}],
            lr=lr,
        )
        self.scheduler = StepLR(self.optimizer, step_size=10)
        self.criterion = nn.MSELoss()
        self.shard()
""",
                    """\
        self.criterion = nn.MSELoss()
        self.shard()
        # plain SGD is enough here
        self.optimizer = SGD(
            [{"params": self.model.parameters(), "weight_decay": 0.1}],
            lr=lr,
        )
        self.scheduler = StepLR(self.optimizer, step_size=10)
""",
                ),
            ),
            healthy=r"loss (\d\.\d+) -> (?!\1)\d",
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build_optimizer(model):
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-2)  # <- FSDP103


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = build_optimizer(model)
    model = FSDP(model, device_id=torch.device("cpu"))
    inputs, targets = torch.randn(16, 4), torch.randn(16, 1)
    first = last = None
    for step in range(4):
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        first, last = first or loss.item(), loss.item()
    print(f"loss {first:.6f} -> {last:.6f}")
    dist.destroy_process_group()


main()
""",
            symptom=Symptom(prints=r"loss (\d\.\d+) -> \1\b"),
            changes=(
                (
                    'FSDP(model, device_id=torch.device("cpu"))',
                    'FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)',
                ),
            ),
            healthy=r"loss (\d\.\d+) -> (?!\1)\d",
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    fully_shard(model[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # <- FSDP103
    optimizer.zero_grad(set_to_none=True)
    fully_shard(model)
    before = model[1].weight.full_tensor()
    for _ in range(3):
        model(torch.randn(16, 4)).pow(2).mean().backward()
        optimizer.step()
        model.zero_grad()
    print("last layer moved:", not torch.equal(before, model[1].weight.full_tensor()))
    dist.destroy_process_group()


main()
""",
            symptom=Symptom(prints="last layer moved: False"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 1)
params = [p for p in model.parameters() if p.requires_grad]
fully_shard(model)
optimizer = torch.optim.AdamW(params, lr=1e-2)  # <- FSDP103
inputs, targets = torch.randn(16, 4), torch.randn(16, 1)
losses = []
for step in range(4):
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
dist.destroy_process_group()
""",
            symptom=Symptom(prints=r"loss (\d\.\d+) -> \1\b"),
        ),
    )

    good = (
        Good(
            why="a generator gives the parameters that the model has when the optimizer is built",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 1)
params = (p for p in model.parameters() if p.requires_grad)
names = [name for name, _ in model.named_parameters()]
fully_shard(model)
optimizer = torch.optim.SGD(params, lr=0.1)
x = torch.randn(16, 4)
first = model(x).pow(2).mean()
first.backward()
optimizer.step()
assert model(x).pow(2).mean() < first
dist.destroy_process_group()
""",
        ),
        Good(
            why="FSDP1 keeps the parameter objects with use_orig_params=True",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
x = torch.randn(16, 4)
first = model(x).pow(2).mean()
first.backward()
optimizer.step()
assert model(x).pow(2).mean() < first
dist.destroy_process_group()
""",
        ),
        Good(
            why="over the inner module, but built after FSDP1 wrapped it",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Linear(4, 1)
model = FSDP(net, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(16, 4)
first = model(x).pow(2).mean()
first.backward()
optimizer.step()
assert model(x).pow(2).mean() < first
dist.destroy_process_group()
""",
        ),
        Good(
            why="rebuilt after sharding, before it is stepped",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = self.make_optimizer()
        fully_shard(self.model)
        self.optimizer = self.make_optimizer()

    def make_optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        loss = self.model(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


dist.init_process_group("gloo")
torch.manual_seed(0)
trainer = Trainer(nn.Linear(4, 1))
x = torch.randn(16, 4)
assert trainer.step(x) > trainer.step(x)
dist.destroy_process_group()
""",
        ),
        Good(
            why="two models, each with its own optimizer; only the other one is sharded later",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
fully_shard(generator)
generator_optimizer = torch.optim.SGD(generator.parameters(), lr=0.1)
fully_shard(critic)
critic_optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
x = torch.randn(16, 4)
losses = []
for _ in range(2):
    loss = critic(generator(x)).pow(2).mean()
    loss.backward()
    for optimizer in (generator_optimizer, critic_optimizer):
        optimizer.step()
        optimizer.zero_grad()
    losses.append(loss.item())
assert losses[1] < losses[0]
dist.destroy_process_group()
""",
        ),
        Good(
            why="the optimizer's modules were sharded before; the root has nothing left to replace",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
fully_shard(model[0])
fully_shard(model[2])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fully_shard(model)
x = torch.randn(16, 4)
first = model(x).pow(2).mean()
first.backward()
optimizer.step()
assert model(x).pow(2).mean() < first
dist.destroy_process_group()
""",
        ),
    )


def _keep_parameters(event: Wrapped, program: Program) -> Fix | None:
    """Have FSDP1 keep the parameters that the optimizer holds, if there is one wrapping only."""
    from fsdplint.edits.rewrite import Rewrite
    from fsdplint.fixes.syntax import call_at
    from fsdplint.fixes.wrapper_options import set_option

    found = call_at(event.site)
    sites = {other.site for trace in program.traces for other in trace.of(Wrapped)}
    rewrite = Rewrite()
    if len(sites) > 1 or found is None:
        return None
    if not set_option(rewrite, *found, "use_orig_params", "True"):
        return None
    rewrite.relies_on(*found)
    return rewrite.fix("Wrap with use_orig_params=True", Safety.UNSAFE)


def _built_again(trace: Trace, built: OptimizerBuilt, before: Event) -> bool:
    """Whether `__init__` of the optimizer is called again before an event."""
    return any(
        other.optimizer == built.optimizer and other.index > built.index
        for other in trace.before(before, OptimizerBuilt)
    )


def _concerns(trace: Trace, event: Shard, built: OptimizerBuilt) -> bool:
    """Whether the sharding is of something that the optimizer holds, a part or a parent of it."""
    return any(
        trace.related(target, module) for target in sharded_by(event) for module in built.modules
    )
