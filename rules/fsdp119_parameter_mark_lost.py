"""FSDP119: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Event,
    ParameterMarked,
    ParameterMarkRead,
    Sharded,
    Site,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.groups import Groups, Shard, shard_events


class ParameterMarkLost(Rule):
    """An attribute or a hook of a parameter does not survive sharding.

    ## What it does
    Finds attributes that are set on parameters (`p.no_weight_decay = True`), before `fully_shard`
    replaces the parameters, and asked for after that; and hooks (`register_hook`,
    `register_post_accumulate_grad_hook`) that are registered on parameters before `fully_shard` or
    FSDP1 and not again afterwards, with a backward pass to follow.

    ## Why is this bad?
    Sharding puts new parameters into the module, without the attributes and hooks of the old ones.
    `getattr(p, "no_weight_decay", False)` is then False for every parameter, so that all of them
    decay; a hook never runs. Neither gives an error.

    ## Since
    torch 2.4 for `fully_shard`, always for the hooks under FSDP1.

    ## References
    - pytorch/pytorch#136929.
    - NVIDIA/Megatron-LM#5790, axolotl-ai-cloud/axolotl#2992.
    """

    code = "FSDP119"
    name = "parameter-mark-lost"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        marks = sorted(_left(trace), key=lambda mark: mark.index)
        if not marks:
            return
        groups = Groups(trace)
        seen: set[Site] = set()
        asked: list[ParameterMarkRead | ParameterMarked] = [
            *trace.of(ParameterMarkRead),
            *(mark for mark in marks if mark.hook),
        ]
        for event in asked:
            if event.site in seen or event.ranks.partial:
                continue
            found = (
                self._read(groups, event, marks)
                if isinstance(event, ParameterMarkRead)
                else self._hook(groups, event, marks)
            )
            if found is not None:
                seen.add(event.site)
                yield found

    def _read(
        self, groups: Groups, event: ParameterMarkRead, marks: list[ParameterMarked]
    ) -> Finding | None:
        """An attribute that is asked for after the parameters that had it are gone."""
        before = [
            mark
            for mark in marks
            if mark.index < event.index
            and mark.name == event.name
            and _related(groups.trace, mark.modules, event.modules)
        ]
        if not before:
            return None
        shard = _replacing(groups, before[-1], event)
        if shard is None or not isinstance(shard, Sharded):
            return None
        found = self.finding(
            event,
            f"`{event.name}` was set on parameters before `fully_shard` replaced them: the new ones "
            f"do not have it",
            help="Set it after sharding, or go by the parameters' names, which stay the same.",
            because=[(shard, "parameters replaced here")],
        )
        if before[-1].site != shard.site:
            found.related = ((before[-1].site, "set here"), *found.related)
        return found

    def _hook(
        self, groups: Groups, event: ParameterMarked, marks: list[ParameterMarked]
    ) -> Finding | None:
        """A hook on parameters that are gone when the gradients come."""
        shard = _replacing(groups, event, None)
        if shard is None or first(groups.trace.after(shard, BackwardRun)) is None:
            return None
        again = any(
            mark.hook
            and mark.index > shard.index
            and _related(groups.trace, mark.modules, event.modules)
            for mark in marks
        )
        if again:
            return None
        how = "FSDP" if isinstance(shard, Wrapped) else "fully_shard"
        return self.finding(
            event,
            f"`{event.name}` is called on a parameter before `{how}` replaces it: the hook never runs",
            help="Register the hook after sharding with `register_post_accumulate_grad_hook`; FSDP2 "
            "runs no others."
            if isinstance(shard, Sharded)
            else "FSDP1 hands gradients to its flat parameters: work on `p.grad` after the backward.",
            because=[(shard, "parameters replaced here")],
        )

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1))
for name, parameter in model.named_parameters():
    if name.endswith("bias"):
        parameter.no_weight_decay = True
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)

decay, rest = [], []
for parameter in model.parameters():
    if getattr(parameter, "no_weight_decay", False):  # <- FSDP119
        rest.append(parameter)
    else:
        decay.append(parameter)
print("without decay:", len(rest))
groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=1e-2)
model(torch.randn(16, 4)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
""",
            symptom=Symptom(prints="without decay: 0"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Decay(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(width))
        self.rate.slow = True
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.exp(-self.rate) * self.linear(x)


class Trainer:
    def __init__(self, model):
        self.model = model
        fully_shard(self.model)
        self.optimizer = self.make_optimizer()

    def make_optimizer(self):
        slow = [p for p in self.model.parameters() if hasattr(p, "slow")]  # <- FSDP119
        print("slow parameters:", len(slow))
        return torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, inputs):
        self.model(inputs).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer(Decay(4)).step(torch.randn(16, 4))
    dist.destroy_process_group()
""",
            symptom=Symptom(prints="slow parameters: 0"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def watch_gradients(model, seen):
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: seen.append(name))  # <- FSDP119


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    seen = []
    watch_gradients(model, seen)
    fully_shard(model[0])
    fully_shard(model)
    model(torch.randn(16, 4)).pow(2).mean().backward()
    print("gradients seen:", len(seen))
    dist.destroy_process_group()


main()
""",
            symptom=Symptom(prints="gradients seen: 0"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
norms = []
model[2].weight.register_hook(lambda grad: norms.append(grad.norm().item()))  # <- FSDP119
model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(16, 4)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("norms:", norms)
dist.destroy_process_group()
""",
            symptom=Symptom(prints=r"norms: \[\]"),
        ),
    )

    good = (
        Good(
            why="set and read before sharding, or set after it",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
for name, parameter in model.named_parameters():
    parameter.decays = not name.endswith("bias")
print("decaying:", sum(getattr(p, "decays", False) for p in model.parameters()))
fully_shard(model[0])
fully_shard(model)
for name, parameter in model.named_parameters():
    parameter.decays = not name.endswith("bias")
decay = [p for p in model.parameters() if p.decays]
assert len(decay) == 2
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model(torch.randn(16, 4)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
""",
        ),
        Good(
            why="set before sharding but never asked for afterwards; the groups go by names",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.linear.bias.is_bias = True

    def forward(self, x):
        return self.linear(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
names = {n for n, p in model.named_parameters() if getattr(p, "is_bias", False)}
fully_shard(model)
rest = [p for n, p in model.named_parameters() if n in names]
decay = [p for n, p in model.named_parameters() if n not in names]
assert len(rest) == 1
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2
)
model(torch.randn(16, 4)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the hook is registered after sharding, where FSDP2 runs it",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
fully_shard(model[0])
fully_shard(model)
seen = []
for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(lambda p: seen.append(p))
model(torch.randn(16, 4)).pow(2).mean().backward()
assert len(seen) == 4
dist.destroy_process_group()
""",
        ),
        Good(
            why="the hooks have done their work, and are removed before sharding",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def measured(model, inputs):
    norms, handles = {}, []
    for name, parameter in model.named_parameters():
        handles.append(
            parameter.register_hook(lambda grad, name=name: norms.update({name: grad.norm()}))
        )
    model(inputs).pow(2).mean().backward()
    for handle in handles:
        handle.remove()
    model.zero_grad()
    return norms


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 1)
assert len(measured(model, torch.randn(16, 4))) == 2
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(16, 4)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
""",
        ),
        Good(
            why="marks and hooks of a model that is not the sharded one",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
teacher, student = nn.Linear(4, 1), nn.Linear(4, 1)
seen = []
student.weight.register_hook(lambda grad: seen.append(grad))
student.weight.watched = True
teacher.requires_grad_(False)
fully_shard(teacher)
optimizer = torch.optim.SGD([p for p in student.parameters() if hasattr(p, "watched")], lr=0.1)
inputs = torch.randn(16, 4)
nn.functional.mse_loss(student(inputs), teacher(inputs)).backward()
optimizer.step()
assert len(seen) == 1
dist.destroy_process_group()
""",
        ),
    )


def _left(trace: Trace) -> Iterator[ParameterMarked]:
    """The marks that are not taken away before something is sharded."""
    gone: set[tuple[object, ...]] = set()
    for event in reversed(trace.events):
        if isinstance(event, Shard):
            gone.clear()
        elif isinstance(event, ParameterMarked):
            key = (event.name, event.hook, event.modules)
            if event.removed:
                gone.add(key)
            elif key not in gone:
                yield event


def _related(trace: Trace, ones: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return any(trace.related(one, other) for one in ones for other in others)


def _replacing(groups: Groups, mark: ParameterMarked, before: Event | None) -> Shard | None:
    """What first replaces the marked parameters, by the time of an event if one is given."""
    for shard in shard_events(groups.trace, after=mark, before=before):
        if mark.hook and isinstance(shard, Wrapped):
            if _related(groups.trace, (shard.inner,), mark.modules):
                return shard
        elif groups.replaces(shard, mark.modules):
            return shard
    return None
