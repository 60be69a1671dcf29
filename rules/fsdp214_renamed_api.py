"""FSDP214: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.syntax.version_guards import asks_for_version
from fsdplint.trace import Event, Fsdp2Used, Loaded, Saved, Site, Trace
from fsdplint.trace.torch_versions import METHODS

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.trace.torch_target import Target

FACTOR, NEW_FACTOR = "set_reduce_scatter_divide_factor", "set_gradient_divide_factor"
DCP = "torch.distributed.checkpoint"
NEW_CHECKPOINTS = "2.2"  # the first torch with `save` and `load`, by its documentation
# They have `no_dist` in 2.2 and in 2.13, and not in 2.3 and 2.4.
WITH_NO_DIST = "2.13"
CHECKPOINTS = {f"{DCP}.save_state_dict": "save", f"{DCP}.load_state_dict": "load"}

DIVIDED = """\
import warnings

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def shard(model, factor):
    for layer in model:
        fully_shard(layer)
        layer.set_reduce_scatter_divide_factor(factor)  # <- FSDP214
    return fully_shard(model)


dist.init_process_group("gloo")
torch.manual_seed(0)
warnings.simplefilter("error", DeprecationWarning)
model = shard(nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8)), factor=1.0)
print("divided", tuple(model(torch.ones(4, 8)).shape))
dist.destroy_process_group()
"""

SAVED = """\
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

warnings.simplefilter("error", FutureWarning)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
state = {"model": model.state_dict()}
dcp.save_state_dict(state, dcp.FileSystemWriter("checkpoint"))  # <- FSDP214
dcp.load_state_dict(  # <- FSDP214
    state_dict=state,
    storage_reader=dcp.FileSystemReader("checkpoint"),
)
model.load_state_dict(state["model"])
print("loaded", len(state["model"]))
dist.destroy_process_group()
"""

IMPORTED = """\
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import FileSystemWriter, save_state_dict
from torch.distributed.fsdp import fully_shard


class Checkpointer:
    def __init__(self, folder):
        self.folder = folder

    def save(self, model, optimizer):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        save_state_dict(state, FileSystemWriter(self.folder), no_dist=False)  # <- FSDP214


warnings.simplefilter("error", FutureWarning)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Checkpointer("checkpoint").save(model, optimizer)
print("saved")
dist.destroy_process_group()
"""

NEW = """\
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def save_state_dict(state, folder):
    dcp.save(state, checkpoint_id=folder)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Linear(8, 8))
model.set_gradient_divide_factor(1.0)
print(model(torch.randn(4, 8)).shape)
save_state_dict(model.state_dict(), "checkpoint")
dist.destroy_process_group()
"""

ASKED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Linear(8, 8))
if hasattr(model, "set_gradient_divide_factor"):
    model.set_gradient_divide_factor(1.0)
else:
    model.set_reduce_scatter_divide_factor(1.0)
print(model(torch.randn(4, 8)).shape)
dist.destroy_process_group()
"""

EITHER = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

TORCH_AT_LEAST_2_3 = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 3)


def save(model, folder):
    if TORCH_AT_LEAST_2_3:
        from torch.distributed.checkpoint import save as write

        write(model.state_dict(), checkpoint_id=folder)
    else:
        if torch.__version__.startswith("2.2"):
            from torch.distributed.checkpoint import save as write
        else:
            from torch.distributed.checkpoint import save_state_dict as write
        write(model.state_dict(), torch.distributed.checkpoint.FileSystemWriter(folder))


dist.init_process_group("gloo")
torch.manual_seed(0)
save(fully_shard(nn.Linear(8, 8)), "checkpoint")
dist.destroy_process_group()
"""

FOR_OLD_TORCH = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Linear(8, 8))
model.set_reduce_scatter_divide_factor(1.0)
print(model(torch.randn(4, 8)).shape)
dist.destroy_process_group()
"""


class RenamedApi(Rule):
    """A function or method is used that has another name by now and says so with a warning.

    ## What it does
    Finds `FSDPModule.set_reduce_scatter_divide_factor` (`set_gradient_divide_factor` since torch 2.8), and
    `save_state_dict` and `load_state_dict` of `torch.distributed.checkpoint` (`save` and `load`).

    The old name of the factor is left alone where the program has to run on a torch before 2.8 (`target-torch`, or
    a lower bound or pin in the project's requirements), or asks for the torch that it has.
    So is any old name that is imported only where the torch that is there has no other.

    ## Why is this bad?
    torch warns on every use, and is going to take them away.

        DeprecationWarning: Use `set_gradient_divide_factor` instead
        FutureWarning: `save_state_dict` is deprecated and will be removed in future versions.Please use `save` instead.

    ## Fix safety
    Safe: the new name. The writer or reader of a checkpoint becomes a keyword argument, which it has to be there.
    A call with a `coordinator_rank`, which the new ones don't have, is left to you.

    ## Since
    torch 2.8 for the factor; torch 2.2 for checkpoints.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
      (`FSDPModule.set_gradient_divide_factor`)
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    """

    code = "FSDP214"
    name = "renamed-api"
    severity = Severity.WARNING
    fixable = Safety.SAFE
    bad = (
        Bad(
            DIVIDED,
            symptom=Symptom(raises=r"DeprecationWarning: Use `set_gradient_divide_factor` instead"),
            changes=((FACTOR, NEW_FACTOR),),
            healthy=r"^divided \(4, 8\)$",
        ),
        Bad(
            SAVED,
            symptom=Symptom(raises=r"FutureWarning: `save_state_dict` is deprecated"),
            changes=(
                (
                    'dcp.save_state_dict(state, dcp.FileSystemWriter("checkpoint"))',
                    'dcp.save(state, storage_writer=dcp.FileSystemWriter("checkpoint"))',
                ),
                ("dcp.load_state_dict(", "dcp.load("),
            ),
            healthy=r"^loaded 4$",
        ),
        Bad(
            IMPORTED,
            symptom=Symptom(raises=r"FutureWarning: `save_state_dict` is deprecated"),
            changes=(
                ("import FileSystemWriter, save_state_dict", "import FileSystemWriter, save"),
                (
                    "save_state_dict(state, FileSystemWriter(self.folder), no_dist=False)",
                    "save(state, storage_writer=FileSystemWriter(self.folder), no_dist=False)",
                ),
            ),
            healthy=r"^saved$",
        ),
    )
    good = (
        Good(NEW, why="the new names, and a function of the program's own"),
        Good(ASKED, why="the old name is for an older torch"),
        Good(EITHER, why="the name stands for the old function where torch is old"),
        Good(FOR_OLD_TORCH, why="torch 2.7 has no other name", target_torch="2.7"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        new = METHODS[NEW_FACTOR].version
        too_old = trace.target is not None and trace.target.predates(new)
        for event in trace.of(Fsdp2Used, Saved, Loaded):
            if any(asks_for_version(guard.text) for guard in event.guards):
                continue
            if isinstance(event, Fsdp2Used):
                if event.api == FACTOR and not (too_old or event.optional):
                    yield self._renamed(event, FACTOR, NEW_FACTOR, f" since torch {new}")
            elif isinstance(event, Saved | Loaded) and event.api in CHECKPOINTS:
                if _is_fallback(event.site) or _before(trace.target, NEW_CHECKPOINTS):
                    continue
                last = event.api.rpartition(".")[2]
                yield self._renamed(event, last, f"{DCP}.{CHECKPOINTS[event.api]}", "")

    def _renamed(self, event: Event, old: str, new: str, since: str) -> Finding:
        finding = self.finding(
            event,
            f"`{old}` is deprecated: it is `{new}`{since}",
            help=f"Use `{new}`.",
        )
        finding.configuration = ()  # the name is old, whatever the program is told to do
        return finding

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.renamed import rename_checkpoint, rename_method
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        if found is None:
            return None
        event, rewrite = finding.events[0], Rewrite()
        if isinstance(event, Fsdp2Used):
            done = rename_method(rewrite, *found, NEW_FACTOR)
        else:
            assert isinstance(event, Saved | Loaded)
            every = not _before(program.options.target, WITH_NO_DIST)
            done = rename_checkpoint(rewrite, *found, CHECKPOINTS[event.api], no_dist=every)
        return rewrite.fix("Use the new name", Safety.SAFE) if done else None


def _before(target: Target | None, version: str) -> bool:
    """Whether a program may have to run on a torch before a version."""
    return target is not None and target.may_be_older(version)


def _is_fallback(site: Site) -> bool:
    """Whether the function that is called at a place has another name with another torch."""
    from fsdplint.fixes.syntax import call_at
    from fsdplint.interpreter.imports import stands_for_either

    found = call_at(site)
    return found is not None and stands_for_either(found[0], found[1].func)
