"""FSDP303: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import ProcessGroupInit, Saved, StateTaken, Trace
from fsdplint.trace.queries.common import perhaps_one_rank, whole_file

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

UNGUARDED = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()

path = os.path.join(tempfile.gettempdir(), f"net-{os.environ['MASTER_PORT']}.pt")
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=options)
torch.save(state, path)  # <- FSDP303
print(f"rank {dist.get_rank()} has written {len(state)} tensors")
dist.barrier()
dist.destroy_process_group()
"""

LAST_WINS = """\
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save_checkpoint(model, epoch, path):
    full = StateDictOptions(full_state_dict=True, cpu_offload=True)
    checkpoint = {"epoch": epoch, "model": get_model_state_dict(model, options=full)}
    # Not all ranks are equally fast.
    time.sleep(dist.get_rank() * 0.5)
    torch.save(checkpoint, path)  # <- FSDP303


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
path = os.path.join(tempfile.gettempdir(), f"net-{os.environ['MASTER_PORT']}.pt")
save_checkpoint(model, 1, path)
dist.barrier()
print(f"the file holds {len(torch.load(path)['model'])} tensors")
dist.destroy_process_group()
"""

FSDP1_RANK0_ONLY = """\
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"))
model(torch.randn(4, 8)).sum().backward()

path = os.path.join(tempfile.gettempdir(), f"net-{os.environ['MASTER_PORT']}.pt")
config = FullStateDictConfig(rank0_only=True)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
    state = model.state_dict()
time.sleep(dist.get_rank() * 0.5)
torch.save(state, path)  # <- FSDP303
dist.barrier()
print(f"the file holds {len(torch.load(path))} tensors")
dist.destroy_process_group()
"""

GUARDED = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()

path = os.path.join(tempfile.gettempdir(), f"net-{os.environ['MASTER_PORT']}.pt")
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=options)
if dist.get_rank() == 0:
    torch.save(state, path)
if state:
    torch.save(state, path + ".copy")
torch.save(state, f"{path}.{dist.get_rank()}")
dist.barrier()
dist.destroy_process_group()
"""

EVERY_RANK_WHOLE = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
torch.save(state, os.path.join(tempfile.mkdtemp(), "net.pt"))
dist.barrier()
dist.destroy_process_group()
"""

PLAIN_MODEL = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=options)
count = len(state)
if dist.get_rank() != 0:
    print("nothing to write")
else:
    torch.save(state, os.path.join(tempfile.mkdtemp(), "net.pt"))
torch.save({"count": count}, os.path.join(tempfile.gettempdir(), "count.pt"))
dist.barrier()
dist.destroy_process_group()
"""


class EmptyStateOverCheckpoint(Rule):
    """Every rank writes a state dict that only rank 0 has, to the same file.

    ## What it does
    Finds `torch.save` without a test of the rank, of a state dict that is empty on all ranks but 0:
    `get_model_state_dict` with `full_state_dict=True, cpu_offload=True`, and FSDP1's `rank0_only=True`.

    ## Why is this bad?
    The other ranks write an empty dict over the checkpoint. Which rank is last is a race, so that the
    same program leaves a good file in one run and `{}` in the next: 4 of 12 files written so by two
    ranks of one machine were empty. Nothing is said until the file is read.

    ## Fix safety
    Safe: the write is put under `if dist.get_rank() == 0:`. The state is still gathered on all ranks.

    ## Since
    torch 2.2, where `StateDictOptions` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`StateDictOptions`:
      `full_state_dict` with `cpu_offload` gathers on rank 0 only)
    - pytorch/examples, `distributed/FSDP2/checkpoint.py` writes on rank 0 only
    """

    code = "FSDP303"
    name = "empty-state-over-checkpoint"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    bad = (
        Bad(
            UNGUARDED,
            symptom=Symptom(prints=r"rank 1 has written 0 tensors"),
            changes=(
                (
                    "torch.save(state, path)\n",
                    "if dist.get_rank() == 0:\n    torch.save(state, path)\n",
                ),
            ),
            healthy=r"rank 0 has written 4 tensors",
        ),
        Bad(
            LAST_WINS,
            symptom=Symptom(prints=r"the file holds 0 tensors"),
            changes=(
                (
                    "    torch.save(checkpoint, path)\n",
                    "    if dist.get_rank() == 0:\n        torch.save(checkpoint, path)\n",
                ),
            ),
            healthy=r"the file holds 4 tensors",
        ),
        Bad(
            FSDP1_RANK0_ONLY,
            symptom=Symptom(prints=r"the file holds 0 tensors"),
            changes=(
                (
                    "torch.save(state, path)\n",
                    "if dist.get_rank() == 0:\n    torch.save(state, path)\n",
                ),
            ),
            healthy=r"the file holds 2 tensors",
        ),
    )
    good = (
        Good(GUARDED, why="written by rank 0, where there is something, or to a file per rank"),
        Good(EVERY_RANK_WHOLE, why="without cpu_offload every rank has the whole state"),
        Good(PLAIN_MODEL, why="an else of a rank test; what is saved by all is not the state"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        if not any(trace.of(ProcessGroupInit)):
            return  # a configuration of one process
        for event in trace.of(Saved):
            if event.per_rank or perhaps_one_rank(event) or not whole_file(event.api):
                continue
            for taken in trace.before(event, StateTaken):
                if (
                    taken.rank0_only
                    and taken.state in event.states
                    and not taken.ranks.partial
                    and not _asks_more(taken, event)
                ):
                    yield self._finding(event, taken)
                    break

    def _finding(self, event: Saved, taken: StateTaken) -> Finding:
        return self.finding(
            event,
            "every rank writes this file, but only rank 0 has the state: the others write an empty "
            "one over it",
            help="Write it under `if dist.get_rank() == 0:`.",
            because=[(taken, "taken on all ranks, empty on all but rank 0")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.rank_guard import on_rank0
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        rewrite = Rewrite()
        if found is None or not on_rank0(rewrite, *found):
            return None
        return rewrite.fix("Write on rank 0 only", Safety.SAFE)


def _asks_more(taken: StateTaken, event: Saved) -> bool:
    """Whether the write stands under a test that the state does not stand under.

    It may be a test of the rank in other words (`if args.save_logs:`), or of the state itself.
    """
    return any(guard not in taken.guards for guard in event.guards)
