"""FSDP601: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, Called, Sharded, Trace, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FLAT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.head(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
for layer in model.layers:
    fully_shard(layer, reshard_after_forward=True)
fully_shard(model, reshard_after_forward=True)  # <- FSDP601
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    with CommDebugMode() as communication:
        model(torch.randn(4, 4)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
counts = {str(op): count for op, count in communication.get_comm_counts().items()}
print("all-gathers:", sum(count for op, count in counts.items() if "gather" in op))
dist.destroy_process_group()
"""

METHOD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class Trainer:
    def __init__(self, mesh):
        self.model = nn.Sequential(nn.Linear(4, 8), Block(8), Block(8), nn.Linear(8, 1))
        self.parallelize(mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def parallelize(self, mesh):
        for module in self.model:
            if isinstance(module, Block):
                fully_shard(module, mesh=mesh)
        fully_shard(  # <- FSDP601
            self.model,
            mesh=mesh,
            reshard_after_forward=True,
        )

    def train_step(self, batch):
        loss = self.model(batch).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


dist.init_process_group("gloo")
torch.manual_seed(0)
trainer = Trainer(init_device_mesh("cpu", (dist.get_world_size(),)))
trainer.train_step(torch.randn(4, 4))
with CommDebugMode() as communication:
    trainer.train_step(torch.randn(4, 4))
counts = {str(op): count for op, count in communication.get_comm_counts().items()}
print("all-gathers:", sum(count for op, count in counts.items() if "gather" in op))
dist.destroy_process_group()
"""

SHARED_OPTIONS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.debug import CommDebugMode


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.head(x)


def shard(model):
    options = {
        "mp_policy": MixedPrecisionPolicy(),
        "reshard_after_forward": True,
    }
    for layer in model.layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)  # <- FSDP601


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Net()
    shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        with CommDebugMode() as communication:
            model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    counts = {str(op): count for op, count in communication.get_comm_counts().items()}
    print("all-gathers:", sum(count for op, count in counts.items() if "gather" in op))
    dist.destroy_process_group()


main()
"""

DEFAULT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 8))
fully_shard(model[0], reshard_after_forward=True)
fully_shard(model[1], reshard_after_forward=True)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
"""

NOTHING_LEFT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
fully_shard(model[0])
fully_shard(model[2])
# The root's own group is empty: there is nothing to gather.
fully_shard(model, reshard_after_forward=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
"""

EVALUATED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.Linear(32, 8))
fully_shard(model[2])
fully_shard(model, reshard_after_forward=True)
with torch.no_grad():
    print(f"{model(torch.randn(4, 8)).pow(2).mean().item():.4f}")
dist.destroy_process_group()
"""

PART = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
fully_shard(model.encoder.first)
# Has sharded parts of its own, but the root is the whole model.
fully_shard(model.encoder, reshard_after_forward=True)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
"""


class RootReshardTrue(Rule):
    """The root is sharded with `reshard_after_forward=True` and is gathered twice in every step.

    ## What it does
    Finds `fully_shard(model, reshard_after_forward=True)` at the root of a model whose parts are sharded
    too, and which is trained.

    ## Why is this bad?
    What is left to the root (embeddings, the last norm, the head) is used at the end of the forward and
    again at the beginning of the backward. Freed in between, it has to be gathered a second time, and
    nothing runs meanwhile that could hide it: a step of a model with three sharded layers takes
    8 all-gathers instead of 7. Without the argument `fully_shard` keeps the root's parameters until
    the backward and frees those of all other modules.

    ## Fix safety
    Safe: the argument is taken away at the root; what is computed stays the same. Options in a dict that
    other modules share are left to you: `fully_shard(model, **{**options,
    "reshard_after_forward": False})`.

    ## Since
    torch 2.8; before, the root was kept whatever the argument said.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`reshard_after_forward`)
    - pytorch/pytorch#154655, pytorch/pytorch#154704
    """

    code = "FSDP601"
    name = "root-reshard-true"
    severity = Severity.WARNING
    fixable = Safety.SAFE
    unanimous = True
    bad = (
        Bad(
            FLAT,
            symptom=Symptom(prints="all-gathers: 8"),
            changes=(
                (
                    "fully_shard(model, reshard_after_forward=True)",
                    "fully_shard(model)",
                ),
            ),
            healthy="all-gathers: 7",
        ),
        Bad(
            METHOD,
            symptom=Symptom(prints="all-gathers: 6"),
            changes=(
                (
                    "            mesh=mesh,\n            reshard_after_forward=True,\n",
                    "            mesh=mesh,\n",
                ),
            ),
            healthy="all-gathers: 5",
        ),
        Bad(SHARED_OPTIONS, symptom=Symptom(prints="all-gathers: 8")),
    )
    good = (
        Good(DEFAULT, why="only the parts are resharded; the root has the default"),
        Good(NOTHING_LEFT, why="no parameters are left to the root"),
        Good(EVALUATED, why="without a backward nothing is gathered twice"),
        Good(PART, why="the module has sharded parts but is not the root"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        groups = Groups(trace)
        for event in trace.of(Sharded):
            if event.options.get("reshard_after_forward") is not True or event.group:
                continue
            if event.ranks.partial or not _is_root(trace, groups, event):
                continue
            call = _trained(trace, event)
            if call is None:
                continue
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"`{name}` is the root: freed after the forward, its parameters are gathered again "
                f"at once for the backward",
                help="Leave out `reshard_after_forward` at the root, or pass False there; keep it "
                "for the other modules.",
                because=[(call, "called here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        if found is None:
            return None
        source, call = found
        for trace in program.traces:
            here = {event.module for event in trace.of(Sharded) if event.site == finding.site}
            found_here = any(one.site == finding.site for one in self.check(trace))
            if len(here) > 1 or (here and not found_here):
                return None  # other modules are sharded by the same call
        for number, arg in enumerate(call.args):
            if arg.keyword is None or arg.keyword.value != "reshard_after_forward":
                continue
            if number == 0 or not isinstance(arg.value, cst.Name) or arg.value.value != "True":
                return None
            start, end = source.span(call.args[number - 1].value)[1], source.span(arg.value)[1]
            if "#" in source.text[start:end] or ")" in source.text[start:end]:
                return None
            rewrite = Rewrite()
            rewrite.delete(source, start, end)
            return rewrite.fix("Keep the root's parameters until the backward", Safety.SAFE)
        return None


def _is_root(trace: Trace, groups: Groups, event: Sharded) -> bool:
    """Whether the module is no part of another one, has sharded parts and parameters of its own."""
    root = event.module
    if not trace.complete or trace.modules[root].escaped:
        return False
    if any(trace.modules[m].inner is None for m in groups.above(root)):
        return False
    parts = set(trace.submodules(root)) - {root}
    if not any(
        isinstance(other, Sharded | Wrapped) and parts & {other.module, *_group(other)}
        for other in trace.before(event, Sharded, Wrapped)
    ):
        return False
    return any(trace.modules[m].own_parameters for m in groups.members(root))


def _group(event: Sharded | Wrapped) -> tuple[str, ...]:
    return event.group if isinstance(event, Sharded) else ()


def _trained(trace: Trace, event: Sharded) -> Called | None:
    """The first call of the root from outside that a backward follows."""
    for call in trace.after(event, Called):
        outside = call.inside is None and trace.unwrapped(call.module) == event.module
        if outside and any(True for _ in trace.after(call, BackwardRun)):
            return call
    return None
