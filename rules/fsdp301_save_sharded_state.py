"""FSDP301: see the class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Layout, OptimizerBuilt, Saved, StateTaken, Trace, Wrapped
from fsdplint.trace.queries.common import (
    class_name,
    only_fsdp2,
    optimizer_of,
    sharded_here,
    whole_file,
)
from fsdplint.trace.queries.wrappers import shards, wrappers_of

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

RELOADED = """\
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
model = Net()
for layer in (model.up, model.down):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

path = os.path.join(tempfile.mkdtemp(), "net.pt")
state = model.state_dict()
if dist.get_rank() == 0:
    torch.save(state, path)  # <- FSDP301
    # What the checkpoint is for: one process, no sharding.
    net = Net()
    net.load_state_dict(torch.load(path))
    print(f"reloaded, loss {net(torch.randn(4, 8)).pow(2).mean().item():.4f}")
dist.barrier()
dist.destroy_process_group()
"""

CHECKPOINT = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def save_checkpoint(model, optimizer, step, path):
    torch.save(  # <- FSDP301
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
        },
        path,
    )


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(3):
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    path = os.path.join(tempfile.gettempdir(), f"net-{os.environ['MASTER_PORT']}.pt")
    save_checkpoint(model, optimizer, 3, path)
    dist.barrier()
    if dist.get_rank() == 0:
        # What a script that averages checkpoints does.
        mean = (torch.zeros(32, 8) + torch.load(path)["model"]["0.weight"]) / 2
        print("averaged", tuple(mean.shape))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

UNDER_GUARD = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model):
        self.model = model
        for layer in (model[0], model[2]):
            fully_shard(layer)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.rank = dist.get_rank()

    def step(self, batch):
        self.model(batch).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self, folder):
        if self.rank == 0:
            checkpoint = {"model": self.model.state_dict(), "version": 1}
            torch.save(checkpoint, os.path.join(folder, "net.pt"))  # <- FSDP301


dist.init_process_group("gloo")
torch.manual_seed(0)
trainer = Trainer(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)))
for _ in range(3):
    trainer.step(torch.randn(4, 8))
folder = tempfile.mkdtemp()
trainer.save(folder)
if dist.get_rank() == 0:
    saved = torch.load(os.path.join(folder, "net.pt"))["model"]["0.weight"]
    values = getattr(saved, "to_local", lambda: saved)()
    print(f"{type(saved).__name__} with {values.numel()} of 256 values")
dist.barrier()
dist.destroy_process_group()
"""

BY_NAME = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 32)
        self.down = nn.Linear(32, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def export(model, path):
    # Names without the prefix of torch.compile, on the CPU.
    weights = {
        name.replace("_orig_mod.", ""): value.detach().cpu().contiguous()
        for name, value in model.state_dict().items()
    }
    if dist.get_rank() == 0:
        torch.save(weights, path)  # <- FSDP301


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block())
    for block in model:
        fully_shard(block)
    fully_shard(model)
    model(torch.randn(4, 8)).pow(2).mean().backward()
    folder = tempfile.mkdtemp()
    export(model, os.path.join(folder, "weights.pt"))
    if dist.get_rank() == 0:
        value = torch.load(os.path.join(folder, "weights.pt"))["0.up.weight"]
        values = getattr(value, "to_local", lambda: value)()
        print(f"{values.numel()} of 256 values")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

TRAINABLE = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
model[0].requires_grad_(False)
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).pow(2).mean().backward()
path = os.path.join(tempfile.gettempdir(), f"head-{os.environ['MASTER_PORT']}.pt")
if dist.get_rank() == 0:
    trainable = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            trainable[name] = parameter.detach().clone()
    torch.save(trainable, path)  # <- FSDP301
dist.barrier()
head = nn.Linear(32, 8)
with torch.no_grad():
    head.weight.copy_(torch.load(path)["2.weight"])
dist.destroy_process_group()
"""

FSDP1_OPTIMIZER = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()

path = os.path.join(tempfile.gettempdir(), f"optimizer-{os.environ['MASTER_PORT']}.pt")
if dist.get_rank() == 0:
    torch.save(optimizer.state_dict(), path)  # <- FSDP301
dist.barrier()
own = optimizer.state_dict()["state"][0]["exp_avg"].clone()
read = torch.load(path)["state"][0]["exp_avg"]
print(f"rank {dist.get_rank()}: the file holds this rank's moments: {torch.equal(own, read)}")
dist.destroy_process_group()
"""

FSDP1_SHARDS = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()

path = os.path.join(tempfile.gettempdir(), f"shards-{os.environ['MASTER_PORT']}.pt")
with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    state = model.state_dict()
if dist.get_rank() == 0:
    torch.save(state, path)  # <- FSDP301
    held = torch.load(path, weights_only=False)["weight"]
    values = sum(shard.tensor.numel() for shard in held.local_shards())
    print(f"{values} of {held.size().numel()} values")
dist.destroy_process_group()
"""

PER_RANK = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model(torch.randn(4, 8)).sum().backward()
optimizer.step()
folder = os.path.join(tempfile.gettempdir(), "run-" + os.environ["MASTER_PORT"])
os.makedirs(folder, exist_ok=True)
name = f"rank{rank}.pt"
torch.save(
    {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
    os.path.join(folder, name),
)
checkpoint = torch.load(os.path.join(folder, name))
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
dist.destroy_process_group()
"""

GATHERED = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
folder = tempfile.mkdtemp()

options = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=options)
by_hand = {}
for name, value in model.state_dict().items():
    by_hand[name] = value.full_tensor().cpu()
whole = {
    name: value.full_tensor() if hasattr(value, "full_tensor") else value
    for name, value in model.state_dict().items()
}
replicated = {
    name: value.redistribute(placements=[Replicate()]).to_local()
    for name, value in model.state_dict().items()
}
if dist.get_rank() == 0:
    torch.save(state, os.path.join(folder, "a.pt"))
    torch.save(by_hand, os.path.join(folder, "b.pt"))
    torch.save({k: v + 0 for k, v in by_hand.items()}, os.path.join(folder, "c.pt"))
    torch.save(whole, os.path.join(folder, "d.pt"))
    torch.save(replicated, os.path.join(folder, "e.pt"))
    shapes = {k: (tuple(v.shape), v.dtype, v.numel()) for k, v in model.state_dict().items()}
    torch.save(shapes, os.path.join(folder, "shapes.pt"))
dist.barrier()
dist.destroy_process_group()
"""

DISTRIBUTED_CHECKPOINT = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
folder = os.path.join(tempfile.gettempdir(), "dcp-" + os.environ["MASTER_PORT"])
dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
state = {"model": model.state_dict()}
dcp.load(state, checkpoint_id=folder)
model.load_state_dict(state["model"])
dist.destroy_process_group()
"""

OTHER_MODELS = """\
import copy
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
plain = copy.deepcopy(net)
wrapped = FSDP(copy.deepcopy(net), device_id=torch.device("cpu"))
for layer in (net[0], net[2]):
    fully_shard(layer)
fully_shard(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
net(torch.randn(4, 8)).sum().backward()
optimizer.step()
scheduler.step()
wrapped_state = wrapped.state_dict()
if dist.get_rank() == 0:
    folder = tempfile.mkdtemp()
    torch.save(plain.state_dict(), os.path.join(folder, "plain.pt"))
    torch.save(wrapped_state, os.path.join(folder, "fsdp1.pt"))
    torch.save(scheduler.state_dict(), os.path.join(folder, "scheduler.pt"))
dist.barrier()
dist.destroy_process_group()
"""


class SaveShardedState(Rule):
    """The state dict of a sharded model or of its optimizer is saved as if it were whole.

    ## What it does
    Finds `torch.save` and safetensors' `save_file` of `model.state_dict()` where `fully_shard` shards
    the model, of `optimizer.state_dict()` where the optimizer's parameters are sharded (by FSDP1 too),
    of FSDP1's `SHARDED_STATE_DICT`, and of dicts made of the sharded parameters. Tensors that went through `cpu()`, `clone()`, `to()` and
    the like, under other names or only some of them, are as sharded as before.

    A file per rank (the path depends on the rank) holds all parts and is fine, and so are
    `torch.distributed.checkpoint.save` and tensors made whole by `full_tensor()`. A sharded model that is
    itself pickled is FSDP304.

    ## Why is this bad?
    FSDP1's `state_dict()` is whole by default. FSDP2's holds DTensors, and an optimizer's state dict
    holds the saving rank's part under both. Written by one rank the file has 1/N of the values, and
    where all ranks write it, the last one wins. Nothing is said when it is written; reading it
    elsewhere ends with

        WeightsUnpickler error: ... `torch.distributed.tensor` must be imported to load DTensors

    or, in a process that has imported it, with `aten.copy_.default got mixed torch.Tensor and DTensor`.
    safetensors ends with "Attempted to access the data pointer on an invalid python storage". An FSDP1
    optimizer gives no error at all: every rank resumes with the moments of the rank that wrote the file.

    ## Fix safety
    Unsafe: all ranks gather the state with `get_model_state_dict` and `get_optimizer_state_dict`
    (`full_state_dict=True, cpu_offload=True`) and rank 0 writes it. That is what the file was meant to
    hold, but it is another content than before: rank 0 needs the memory of the whole model, and the
    optimizer's state is keyed by parameter names, to be read back with `set_optimizer_state_dict`.
    With `checkpoint = "dcp"` in the settings, all ranks write their parts with
    `torch.distributed.checkpoint.save` instead: into a folder of the name that the file had, to be read
    with `torch.distributed.checkpoint.load`. What else reads the file or uses its path in the program
    prevents this fix; the finding says so.
    There is no fix for an optimizer under FSDP1 (migrate the model) or for a dict of parameters.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (state dicts)
    - pytorch/torchtitan, `docs/fsdp.md`: `model.state_dict()` is sharded
    - huggingface/accelerate#4206: a rank 0 slice instead of the adapter; volcengine/verl#1703: the file
      cannot be read elsewhere
    """

    code = "FSDP301"
    name = "save-sharded-state"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    bad = (
        Bad(
            RELOADED,
            symptom=Symptom(raises=r"got mixed torch\.Tensor and DTensor"),
            changes=(
                (
                    "import torch.nn as nn\n",
                    """\
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
""",
                ),
                (
                    "state = model.state_dict()\n",
                    """\
state = get_model_state_dict(
    model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
)
""",
                ),
            ),
            healthy=r"reloaded, loss \d",
        ),
        Bad(
            CHECKPOINT,
            symptom=Symptom(raises=r"got mixed torch\.Tensor and DTensor"),
            changes=(
                (
                    "import torch.nn as nn\n",
                    """\
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
""",
                ),
                (
                    """\
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
        },
        path,
    )
""",
                    """\
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_state = get_model_state_dict(model, options=options)
    optimizer_state = get_optimizer_state_dict(model, optimizer, options=options)
    if dist.get_rank() == 0:
        torch.save(
            {
                "model": model_state,
                "optimizer": optimizer_state,
                "step": step,
            },
            path,
        )
""",
                ),
            ),
            healthy=r"averaged \(32, 8\)",
        ),
        Bad(
            UNDER_GUARD,
            symptom=Symptom(prints=r"DTensor with 128 of 256 values"),
            changes=(
                (
                    "import torch.nn as nn\n",
                    """\
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
""",
                ),
                (
                    """\
        if self.rank == 0:
            checkpoint = {"model": self.model.state_dict(), "version": 1}
""",
                    """\
        model_state = get_model_state_dict(
            self.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        if self.rank == 0:
            checkpoint = {"model": model_state, "version": 1}
""",
                ),
            ),
            healthy=r"Tensor with 256 of 256 values",
        ),
        Bad(
            BY_NAME,
            symptom=Symptom(prints=r"128 of 256 values"),
            changes=(
                (
                    "import torch.nn as nn\n",
                    """\
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
""",
                ),
                (
                    "    weights = {\n",
                    """\
    model_state = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    weights = {
""",
                ),
                ("model.state_dict().items()", "model_state.items()"),
            ),
            healthy=r"256 of 256 values",
        ),
        Bad(TRAINABLE, symptom=Symptom(raises=r"got mixed torch\.Tensor and DTensor")),
        Bad(FSDP1_SHARDS, symptom=Symptom(prints=r"32 of 64 values")),
        Bad(
            FSDP1_OPTIMIZER,
            symptom=Symptom(prints=r"rank 1: the file holds this rank's moments: False"),
        ),
    )
    good = (
        Good(PER_RANK, why="a file per rank: no part is lost"),
        Good(GATHERED, why="the tensors are whole"),
        Good(DISTRIBUTED_CHECKPOINT, why="distributed checkpoints are made of parts"),
        Good(OTHER_MODELS, why="models that are not sharded, FSDP1's full state, a scheduler"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Saved):
            if not whole_file(event.api) or event.per_rank:
                continue
            if any(only_fsdp2(trace, m, event) for m in event.modules):
                continue  # nothing is written: FSDP304
            if parts := list(_sharded_parts(trace, event)):
                yield self._partial(trace, event, parts)
            elif Layout.SHARDED in event.layouts[len(event.states) :]:
                yield self._tensors(event)

    def _partial(self, trace: Trace, event: Saved, parts: list[tuple[StateTaken, str]]) -> Finding:
        names = " and ".join(dict.fromkeys(name for _, name in parts))
        names = f"the state of {names} is"
        if len({name for _, name in parts}) > 1:
            names = names.replace("the state", "the states").removesuffix("is") + "are"
        taken = [part for part, _ in parts]
        of = next((m for part in taken for m in _modules_of(trace, part)), None)
        return self.finding(
            event,
            f"{names} sharded but saved as if whole: the file holds one rank's part of each tensor",
            help="Gather it on all ranks with `get_model_state_dict` (or `get_optimizer_state_dict`) "
            "and `StateDictOptions(full_state_dict=True, cpu_offload=True)`, write it on rank 0; or "
            "save all parts with `torch.distributed.checkpoint.save`.",
            because=[
                *((part, "taken here") for part in taken),
                *(sharded_here(trace, of, event) if of else []),
            ],
        )

    def _tensors(self, event: Saved) -> Finding:
        return self.finding(
            event,
            "sharded tensors are saved as if whole: the file holds one rank's part of each",
            help="Call `full_tensor()` on each of them, on all ranks, and write the file on rank 0; or "
            "take `get_model_state_dict` with `StateDictOptions(full_state_dict=True, "
            "cpu_offload=True)`.",
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.config.options import DCP
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.parts import save_parts
        from fsdplint.fixes.state_dict import gather_and_save

        if any(isinstance(event, Wrapped) for event in finding.events):
            return None  # FSDP1 has contexts of its own for this
        rewrite = Rewrite()
        if program.options.checkpoint == DCP:
            finding.blocker = save_parts(rewrite, finding, program)
            if finding.blocker is not None:
                return None
            title = "Save all ranks' parts with torch.distributed.checkpoint"
            return rewrite.fix(title, Safety.UNSAFE)
        if not gather_and_save(rewrite, finding, program):
            return None
        return rewrite.fix("Gather the whole state on all ranks, write it on rank 0", Safety.UNSAFE)


def _modules_of(trace: Trace, taken: StateTaken) -> tuple[str, ...]:
    built = optimizer_of(trace, taken.of)
    return (taken.of,) if built is None else built.modules


def _sharded_parts(trace: Trace, event: Saved) -> Iterator[tuple[StateTaken, str]]:
    """The sharded state dicts in the file, each with what it is the state of, in words."""
    for taken in trace.before(event, StateTaken):
        if taken.state not in event.states:
            continue
        if taken.layout not in (Layout.SHARDED, Layout.LOCAL):
            continue
        built = optimizer_of(trace, taken.of)
        if built is not None:
            if _known_sharded(trace, built, event):
                yield taken, f"the optimizer `{built.class_name or 'optimizer'}`"
        elif only_fsdp2(trace, taken.of, event) or _sharded_by_fsdp1(trace, taken, event):
            yield taken, f"`{class_name(trace, taken.of)}`"


def _sharded_by_fsdp1(trace: Trace, taken: StateTaken, event: Saved) -> bool:
    wrappers = wrappers_of(trace, taken.of, event) if taken.of in trace.modules else []
    return bool(wrappers) and all(map(shards, wrappers))


def _known_sharded(trace: Trace, built: OptimizerBuilt, event: Event) -> bool:
    if any(
        str(wrapped.options.get("sharding_strategy", "")).endswith("NO_SHARD")
        for wrapped in trace.before(event, Wrapped)
    ):
        return False  # every rank has all of it
    return any(
        m in trace.modules and trace.sharded_within(m, event) is not None for m in built.modules
    )
