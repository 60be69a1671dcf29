"""FSDP215: see the class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.syntax.version_guards import asks_for_version
from fsdplint.trace import Event, Fsdp2Used, Imported, Trace
from fsdplint.trace.queries.common import asked_for
from fsdplint.trace.torch_versions import ARGUMENTS, FSDP, METHODS, NAMES, Since

RECOVERS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    if step == 1:  # given up
        model.reset_iter_state()  # <- FSDP215
        continue
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""

IGNORES = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.frozen(x))


def shard(model):
    ignored = set(model.frozen.parameters())
    fully_shard(  # <- FSDP215
        model,
        ignored_params=ignored,
    )
    model.set_reshard_after_forward(False)  # <- FSDP215
    return model


dist.init_process_group("gloo")
torch.manual_seed(0)
model = shard(Net())
loss = model(torch.randn(4, 8)).pow(2).mean()
loss.backward()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""

PUBLIC = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FSDPModule, fully_shard  # <- FSDP215

dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Linear(8, 8))
print("sharded", isinstance(model, FSDPModule))
dist.destroy_process_group()
"""

ASKS = """\
import torch
import torch.distributed as dist
import torch.nn as nn

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    from torch.distributed._composable.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Linear(8, 8))
if hasattr(model, "set_gradient_divide_factor"):
    model.set_gradient_divide_factor(1.0)
if torch.__version__ >= "2.8":
    model.set_reshard_after_forward(False)
print(model(torch.randn(4, 8)).shape)
dist.destroy_process_group()
"""

FITS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model, ignored_params=set())
register_fsdp_forward_method(model, "forward")
model.set_requires_gradient_sync(True)
model[0].set_modules_to_forward_prefetch([model[1]])
model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
"""

OWN = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Batches:
    def __init__(self, count):
        self.batches = list(torch.randn(count, 4, 8))
        self.reset_iter_state()

    def reset_iter_state(self):
        self.position = 0

    def next(self):
        self.position += 1
        return self.batches[self.position - 1]


dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Linear(8, 8))
batches = Batches(2)
model(batches.next()).sum().backward()
batches.reset_iter_state()
dist.destroy_process_group()
"""


class NewerThanTarget(Rule):
    """Something of FSDP2 is used that came after the torch that the program is for.

    ## What it does
    Finds methods of `FSDPModule`, arguments of `fully_shard` and names imported from `torch.distributed.fsdp` that
    the program's torch does not have yet.

    Which torch that is has to be certain: `target-torch` (or `--target-torch`), or a pin or an upper bound of torch in
    every requirement of the project that names it (`torch==2.6.0`, `torch~=2.6.0`, `torch<2.8`). A lower
    bound alone (`torch>=2.4`) says nothing: the program may well run with a newer one. Nor is something a finding
    that the program asks for first (`hasattr`, a test of the version, a `try` around the import).

    ## Why is this bad?
    It ends in an ImportError, an AttributeError or a TypeError on that torch. (Read from the wheels of torch 2.4 to
    2.15; the examples here run on a newer one.)

    ## Since
    torch 2.4.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    - https://github.com/pytorch/pytorch/releases
    """

    code = "FSDP215"
    name = "newer-than-target"
    severity = Severity.WARNING
    bad = (
        Bad(RECOVERS, symptom=Symptom(prints=r"^loss \d"), target_torch="2.8"),
        Bad(IGNORES, symptom=Symptom(prints=r"^loss \d"), target_torch="2.6"),
        Bad(PUBLIC, symptom=Symptom(prints=r"^sharded True$"), target_torch="2.5"),
    )
    good = (
        Good(RECOVERS.replace("  # <- FSDP215", ""), why="no torch is given"),
        Good(ASKS, why="the program asks for what its torch has", target_torch="2.5"),
        Good(FITS, why="torch 2.7 has all of it", target_torch="2.7"),
        Good(OWN, why="the method is that of a class of the program's own", target_torch="2.6"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        target = trace.target
        if target is None or target.newest is None:
            return
        for event in trace.events:
            if any(asks_for_version(guard.text) for guard in event.guards):
                continue
            missing = [since for since in _used(event) if target.lacks(since.version)]
            if not missing:
                continue
            latest = missing[0]
            advice = f"Before, there is {latest.before}." if latest.before else ""
            yield self.finding(
                event,
                f"{latest.what} came with torch {latest.version}; {target.said()}",
                help=f"{advice} Ask for the version first, or raise the target.".strip(),
            )


def _used(event: Event) -> Iterator[Since]:
    """What an event uses that not every torch with FSDP2 has."""
    if isinstance(event, Fsdp2Used) and not event.optional:
        head, _, argument = event.api.partition(".")
        since = ARGUMENTS.get(argument) if argument else METHODS.get(head)
        if since is not None and not asked_for(event, event.api):
            yield since
    elif isinstance(event, Imported) and event.package == FSDP and not event.optional:
        yield from (NAMES[name] for name in event.names if name in NAMES)
