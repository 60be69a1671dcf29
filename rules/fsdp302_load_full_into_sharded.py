"""FSDP302: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Layout, Loaded, Saved, StateLoaded, StateTaken, Trace
from fsdplint.trace.queries.common import (
    class_name,
    only_fsdp2,
    optimizer_of,
    sharded_here,
    whole_file,
)

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FROM_FILE = """\
import os
import tempfile

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
path = os.path.join(tempfile.gettempdir(), f"net-{os.environ['MASTER_PORT']}.pt")
if dist.get_rank() == 0:
    torch.save(Net().state_dict(), path)
dist.barrier()

model = Net()
for layer in (model.up, model.down):
    fully_shard(layer)
fully_shard(model)
model.load_state_dict(torch.load(path, map_location="cpu"))  # <- FSDP302
loss = model(torch.ones(4, 8)).pow(2).mean()
loss.backward()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""

RESUME = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def build():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))


class Trainer:
    def __init__(self, checkpoint=None):
        with torch.device("meta"):
            self.model = build()
        for layer in (self.model[0], self.model[2]):
            fully_shard(layer)
        fully_shard(self.model)
        if checkpoint is not None:
            self.resume(checkpoint)

    def resume(self, path):
        state = torch.load(path, map_location="cpu", weights_only=True)
        # Files of older versions hold more than the weights.
        self.model.load_state_dict(state["model"], strict=False, assign=True)  # <- FSDP302

    def step(self, batch):
        loss = self.model(batch).pow(2).mean()
        loss.backward()
        return loss.item()


dist.init_process_group("gloo")
torch.manual_seed(0)
path = os.path.join(tempfile.gettempdir(), f"resume-{os.environ['MASTER_PORT']}.pt")
if dist.get_rank() == 0:
    torch.save({"step": 0, "model": build().state_dict()}, path)
dist.barrier()
print(f"loss {Trainer(path).step(torch.ones(4, 8)):.4f}")
dist.destroy_process_group()
"""

FROM_PLAIN_MODEL = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard


def build():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))


def shard(model):
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)


dist.init_process_group("gloo")
torch.manual_seed(0)
reference = build()
student, teacher = build(), build()
shard(student)
shard(teacher)
options = StateDictOptions(full_state_dict=True)
set_model_state_dict(teacher, reference.state_dict(), options=options)
missing, unexpected = student.load_state_dict(reference.state_dict())  # <- FSDP302
loss = (student(torch.ones(4, 8)) - teacher(torch.ones(4, 8))).pow(2).mean()
print(f"apart by {loss.item():.4f}, unexpected {unexpected}")
dist.destroy_process_group()
"""

OPTIMIZER = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.fsdp import fully_shard


def train(model, optimizer):
    loss = model(torch.ones(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
train(model, optimizer)
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_optimizer_state_dict(model, optimizer, options=options)
path = os.path.join(tempfile.gettempdir(), f"optimizer-{os.environ['MASTER_PORT']}.pt")
if dist.get_rank() == 0:
    torch.save(state, path)
dist.barrier()

optimizer.load_state_dict(torch.load(path))  # <- FSDP302
print(f"loss {train(model, optimizer):.4f}")
dist.destroy_process_group()
"""

BEFORE_SHARDING = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
path = os.path.join(tempfile.gettempdir(), f"net-{os.environ['MASTER_PORT']}.pt")
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
if dist.get_rank() == 0:
    torch.save(model.state_dict(), path)
dist.barrier()

model.load_state_dict(torch.load(path))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.ones(4, 8)).sum().backward()

plain = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
plain.load_state_dict(torch.load(path))
wrapped = FullyShardedDataParallel(plain, device_id=torch.device("cpu"))
wrapped.load_state_dict(torch.load(path))
dist.destroy_process_group()
"""

OWN_STATE = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)

best = {name: value.clone() for name, value in model.state_dict().items()}
model.load_state_dict(best)

folder = os.path.join(tempfile.gettempdir(), "run-" + os.environ["MASTER_PORT"])
os.makedirs(folder, exist_ok=True)
torch.save(model.state_dict(), f"{folder}/rank{rank}.pt")
model.load_state_dict(torch.load(f"{folder}/rank{rank}.pt"))

dcp.save(model.state_dict(), checkpoint_id=f"{folder}/dcp")
state = model.state_dict()
dcp.load(state, checkpoint_id=f"{folder}/dcp")
model.load_state_dict(state)
dist.destroy_process_group()
"""

OWN_OPTIMIZER_STATE = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(model, optimizer):
    loss = model(torch.ones(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def save(optimizer, folder):
    torch.save({"optim": optimizer.state_dict()}, os.path.join(folder, f"{os.getpid()}.pt"))


def resume(optimizer, folder):
    state = torch.load(os.path.join(folder, f"{os.getpid()}.pt"))
    optimizer.load_state_dict(state["optim"])


dist.init_process_group("gloo")
folder = os.path.join(tempfile.gettempdir(), "parts-" + os.environ["MASTER_PORT"])
os.makedirs(folder, exist_ok=True)
model, optimizer = build()
train(model, optimizer)
save(optimizer, folder)
resume(optimizer, folder)
print(f"loss {train(model, optimizer):.4f}")
dist.destroy_process_group()
"""

DISTRIBUTED_BY_HAND = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

dist.init_process_group("gloo")
torch.manual_seed(0)
path = os.path.join(tempfile.gettempdir(), f"net-{os.environ['MASTER_PORT']}.pt")
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
if dist.get_rank() == 0:
    torch.save(model.state_dict(), path)
dist.barrier()
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)

full = torch.load(path)
sharded = {}
for name, value in model.state_dict().items():
    sharded[name] = distribute_tensor(full[name], value.device_mesh, value.placements)
model.load_state_dict(sharded)

own = model.state_dict()
for name, value in own.items():
    full[name] = distribute_tensor(full[name], value.device_mesh, value.placements)
model.load_state_dict(full, assign=True)
model(torch.ones(4, 8)).sum().backward()
dist.destroy_process_group()
"""

SETTER = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
path = os.path.join(tempfile.gettempdir(), f"net-{os.environ['MASTER_PORT']}.pt")
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
if dist.get_rank() == 0:
    torch.save(model.state_dict(), path)
dist.barrier()
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
state = torch.load(path) if dist.get_rank() == 0 else {}
set_model_state_dict(
    model,
    state,
    options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
)
model(torch.ones(4, 8)).sum().backward()
dist.destroy_process_group()
"""


class LoadFullIntoSharded(Rule):
    """A whole state dict is loaded into a sharded model with `load_state_dict`.

    ## What it does
    Finds `model.load_state_dict(state)` where `fully_shard` shards the model and the state holds whole
    tensors: read from a file with `torch.load` or safetensors (the same file on every rank), taken from
    a model that is not sharded, or gathered. The same for `optimizer.load_state_dict` where the
    optimizer's parameters are sharded.

    A state taken from the sharded model itself, read from a file per rank, filled by
    `torch.distributed.checkpoint.load`, or made of DTensors by `distribute_tensor` is fine. A path counts
    as one per rank if it is made of the rank, of the number of the process's device or of another value
    that each process has of its own. Nothing is reported either where the program itself writes the
    sharded state into the same file: it reads DTensors (FSDP301 reports a file that all ranks write).

    ## Why is this bad?
    `load_state_dict` copies tensor by tensor into the sharded parameters, which only take DTensors:

        RuntimeError: ... aten.copy_.default got mixed torch.Tensor and DTensor, need to convert all
        torch.Tensor to DTensor before calling distributed operators!

    With `assign=True` the load passes and the next forward ends with "'Parameter' object has no
    attribute '_local_tensor'". An optimizer's load passes too, if its keys fit, and the next `step()`
    ends with `aten.lerp_.Scalar got mixed torch.Tensor and DTensor`.

    ## Fix safety
    Safe for a model: `set_model_state_dict` with `full_state_dict=True` shards each tensor as the
    parameter is sharded, also into parameters on the meta device. `strict` is kept; parameters that the
    file lacks are not reported, though, and therefore the fix is unsafe where the result of the call is
    used. Unsafe for an optimizer: `set_optimizer_state_dict` wants a state keyed by parameter names, as
    `get_optimizer_state_dict` returns it; files with numbered parameters end with a KeyError.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (state dicts)
    - pytorch/pytorch#136336: FSDP2's `load_state_dict` takes sharded states only
    """

    code = "FSDP302"
    name = "load-full-into-sharded"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    bad = (
        Bad(
            FROM_FILE,
            symptom=Symptom(raises=r"got mixed torch\.Tensor and DTensor"),
            changes=(
                (
                    "import torch.nn as nn\n",
                    """\
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)
""",
                ),
                (
                    'model.load_state_dict(torch.load(path, map_location="cpu"))\n',
                    """\
set_model_state_dict(
    model,
    torch.load(path, map_location="cpu"),
    options=StateDictOptions(full_state_dict=True),
)
""",
                ),
            ),
            healthy=r"loss \d",
        ),
        Bad(
            RESUME,
            symptom=Symptom(raises=r"has no attribute '_local_tensor'"),
            config_dependent=True,
            changes=(
                (
                    "import torch.nn as nn\n",
                    """\
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)
""",
                ),
                (
                    'self.model.load_state_dict(state["model"], strict=False, assign=True)\n',
                    """\
set_model_state_dict(
            self.model,
            state["model"],
            options=StateDictOptions(full_state_dict=True, strict=False),
        )
""",
                ),
            ),
            healthy=r"loss \d",
        ),
        Bad(
            FROM_PLAIN_MODEL,
            symptom=Symptom(raises=r"got mixed torch\.Tensor and DTensor"),
            changes=(
                (
                    "student.load_state_dict(reference.state_dict())\n",
                    """\
set_model_state_dict(
    student, reference.state_dict(), options=StateDictOptions(full_state_dict=True)
)
""",
                ),
            ),
            healthy=r"apart by 0\.0000, unexpected \[\]",
        ),
        Bad(
            OPTIMIZER,
            symptom=Symptom(raises=r"KeyError|got mixed torch\.Tensor and DTensor"),
            changes=(
                (
                    "import StateDictOptions, get_optimizer_state_dict\n",
                    """\
import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
""",
                ),
                (
                    "optimizer.load_state_dict(torch.load(path))\n",
                    """\
set_optimizer_state_dict(
    model, optimizer, torch.load(path), options=StateDictOptions(full_state_dict=True)
)
""",
                ),
            ),
            healthy=r"loss \d",
        ),
    )
    good = (
        Good(BEFORE_SHARDING, why="not sharded yet, or FSDP1, which takes whole states"),
        Good(OWN_STATE, why="the states are the sharded model's own"),
        Good(OWN_OPTIMIZER_STATE, why="each rank reads the optimizer state that it wrote"),
        Good(DISTRIBUTED_BY_HAND, why="the tensors were made DTensors"),
        Good(SETTER, why="set_model_state_dict takes whole states"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(StateLoaded):
            if event.api.rpartition(".")[2] != "load_state_dict":
                continue
            built = optimizer_of(trace, event.into)
            modules = (event.into,) if built is None else built.modules
            sharded = next((m for m in modules if only_fsdp2(trace, m, event)), None)
            if sharded is None:
                continue
            origin = _whole(trace, event)
            if origin is not None:
                name = class_name(trace, sharded) if built is None else built.class_name
                yield self._finding(trace, event, name, sharded, origin, built is not None)

    def _finding(
        self,
        trace: Trace,
        event: StateLoaded,
        name: str,
        sharded: str,
        origin: list[tuple[Event, str]],
        optimizer: bool,
    ) -> Finding:
        what = "an optimizer state" if optimizer else "a state dict"
        setter = "set_optimizer_state_dict" if optimizer else "set_model_state_dict"
        holder = f"`{name}`, whose parameters are sharded," if optimizer else f"sharded `{name}`"
        return self.finding(
            event,
            f"{what} of whole tensors is loaded into {holder} with `load_state_dict`, which takes "
            f"DTensors only",
            help=f"Use `{setter}` with `StateDictOptions(full_state_dict=True)`: it shards the "
            f"tensors (and add `broadcast_from_rank0=True` if only rank 0 reads the file).",
            because=[*origin, *sharded_here(trace, sharded, event)],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.state_dict import load_with_setter

        rewrite = Rewrite()
        safety = load_with_setter(rewrite, finding, program)
        if safety is None:
            return None
        return rewrite.fix("Shard the state while it is loaded", safety)


def _whole(trace: Trace, event: StateLoaded) -> list[tuple[Event, str]] | None:
    """The events that say that the state holds whole tensors; None where it may not."""
    if event.layout is Layout.SHARDED:
        return None
    for other in trace.before(event, Loaded):
        if other.state is not None and other.state == event.state:
            if not whole_file(other.api) or other.per_rank or _saved_sharded(trace, event, other):
                return None
            return [(other, "read here")]
    if event.layout not in (Layout.FULL, Layout.PLAIN):
        return None
    taken = [t for t in trace.before(event, StateTaken) if t.state == event.state]
    return [(t, "taken here") for t in taken[-1:]]


def _saved_sharded(trace: Trace, event: StateLoaded, read: Loaded) -> bool:
    """Whether the program itself writes sharded tensors of that kind into the file that is read."""
    optimizer = optimizer_of(trace, event.into) is not None
    kinds = {t.state: optimizer_of(trace, t.of) is not None for t in trace.of(StateTaken)}
    return any(
        saved.path == read.path
        and any(
            layout is Layout.SHARDED and kinds.get(state) is optimizer
            for state, layout in zip(saved.states, saved.layouts, strict=False)
        )
        for saved in trace.of(Saved)
        if read.path and whole_file(saved.api)
    )
