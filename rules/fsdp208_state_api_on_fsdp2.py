"""FSDP208: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import OPTIMIZER_APIS, STATE_APIS, MigrationRule
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.trace import Fsdp1Used, Trace
from fsdplint.trace.queries.common import class_name, fsdp1_on_fsdp2, sharded_here

BLOCK = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def whole_state(model):
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):  # <- FSDP208
        return model.state_dict()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
state = whole_state(model)
if dist.get_rank() == 0:
    print("whole", tuple(state["0.weight"].shape), type(state["0.weight"]).__name__)
dist.destroy_process_group()
"""

SET = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
    fully_shard,
)

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
FullyShardedDataParallel.set_state_dict_type(  # <- FSDP208
    model,
    StateDictType.FULL_STATE_DICT,
    FullStateDictConfig(),
)
model(torch.randn(4, 8)).pow(2).mean().backward()
# the weights of every rank
state = model.state_dict()
print("weight", type(state["0.weight"]).__name__)
dist.destroy_process_group()
"""

OPTIMIZER = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
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
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
state = FSDP.optim_state_dict(model, optimizer)  # <- FSDP208
print(len(state["state"]), "parameters")
dist.destroy_process_group()
"""

FSDP1_TEACHER = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=options)
if dist.get_rank() == 0:
    print(len(state))
dist.destroy_process_group()
"""

EITHER = """\
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullStateDictConfig, StateDictType, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

parser = argparse.ArgumentParser()
parser.add_argument("--fsdp1", action="store_true")
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(8, 32)
if args.fsdp1:
    model = FSDP(model, device_id=torch.device("cpu"))
else:
    fully_shard(model)
if isinstance(model, FSDP):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig()):
        state = model.state_dict()
else:
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
print(len(state))
dist.destroy_process_group()
"""

OWN = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class FSDP:
    \"\"\"A helper of the program's own.\"\"\"

    @staticmethod
    def optim_state_dict(model, optimizer):
        return {"state": optimizer.state_dict()["state"], "names": dict(model.named_parameters())}


dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Linear(8, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print(len(FSDP.optim_state_dict(model, optimizer)))
dist.destroy_process_group()
"""


class StateApiOnFsdp2(MigrationRule):
    """The state of a model that `fully_shard` shards is asked for by FSDP1's API.

    ## What it does
    Finds `FSDP.state_dict_type`, `FSDP.set_state_dict_type`, `FSDP.optim_state_dict` and their like where
    `fully_shard` shards the model.

    ## Why is this bad?
    They look for FSDP1's wrappers in the model and find none:

    - a `with FSDP.state_dict_type(...)` block ends, when it is left, in `KeyError: None`; what `model.state_dict()`
      gave in it are DTensors, whatever the type says;
    - `FSDP.set_state_dict_type(...)` does nothing, with a FutureWarning about something else, and
      `model.state_dict()` stays sharded;
    - `FSDP.optim_state_dict` ends in `AttributeError: 'NoneType' object has no attribute
      'optim_state_dict_config'`, `FSDP.optim_state_dict_to_load` in `'NoneType' object has no attribute
      'state_dict_type'`, and the older ones (`full_optim_state_dict`, ...) in `IndexError: list index out of range`.

    ## Fix safety
    Safe: `get_model_state_dict`, `get_optimizer_state_dict` and their setters with the kind of state that the
    program asks FSDP1 for. All uses in files that belong together are rewritten, or none.

    ## Since
    torch 2.4, where `fully_shard` came; the getters and setters know it from then on.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP208"
    name = "fsdp1-state-api-on-fsdp2"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    fix_since = "2.4"
    bad = (
        Bad(
            BLOCK,
            symptom=Symptom(raises=r"KeyError: None"),
            changes=(
                (
                    """\
from torch.distributed.fsdp import FullStateDictConfig, StateDictType, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
""",
                    """\
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import fully_shard
""",
                ),
                (
                    """\
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        return model.state_dict()
""",
                    """\
    config = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(model, options=config)
""",
                ),
            ),
            healthy=r"^whole \(32, 8\) Tensor$",
        ),
        Bad(
            SET,
            symptom=Symptom(prints=r"^weight DTensor$"),
            changes=(
                (
                    """\
from torch.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
    fully_shard,
)
""",
                    """\
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import fully_shard
""",
                ),
                (
                    """\
FullyShardedDataParallel.set_state_dict_type(
    model,
    StateDictType.FULL_STATE_DICT,
    FullStateDictConfig(),
)
""",
                    "",
                ),
                (
                    "state = model.state_dict()",
                    "state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))",
                ),
            ),
            healthy=r"^weight Tensor$",
        ),
        Bad(
            OPTIMIZER,
            symptom=Symptom(raises=r"'NoneType' object has no attribute 'optim_state_dict_config'"),
            changes=(
                (
                    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
                    """\
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
)
""",
                ),
                (
                    "FSDP.optim_state_dict(model, optimizer)",
                    """\
get_optimizer_state_dict(
    model, optimizer, options=StateDictOptions(full_state_dict=True)
)""",
                ),
            ),
            healthy=r"^4 parameters$",
        ),
    )
    good = (
        Good(FSDP1_TEACHER, why="the state is taken in FSDP2's way"),
        Good(EITHER, why="FSDP1's API is reached with FSDP1 only"),
        Good(OWN, why="a class of the user's own that is called FSDP"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            api = event.api.removeprefix("FSDP.")
            if api not in (*STATE_APIS, *OPTIMIZER_APIS) or event.module is None:
                continue
            if not fsdp1_on_fsdp2(trace, event):
                continue
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"`FSDP.{api}` knows nothing of `{name}`, which `fully_shard` shards",
                help="Use the getters and setters of `torch.distributed.checkpoint.state_dict`.",
                because=sharded_here(trace, event.module, event),
            )
