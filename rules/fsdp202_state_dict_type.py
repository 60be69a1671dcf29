"""FSDP202: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.examples import FSDP2, OWN_CLASS, program
from fsdplint.migration.rule import STATE_APIS, MigrationRule
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.trace import Fsdp1Used, Trace
from fsdplint.trace.queries.common import fsdp1_on_fsdp2

WRAPPED = """\
model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"))  # <- FSDP201
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
SHARDED = """\
model = fully_shard(
    nn.Linear(8, 4), mesh=init_device_mesh("cpu", (dist.get_world_size(),))
)
"""
IMPORTS = """\
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
"""
END = """\
print(len(state), "tensors")
dist.destroy_process_group()
"""

BLOCK = program(
    IMPORTS,
    WRAPPED,
    """\
config = FullStateDictConfig(offload_to_cpu=False, rank0_only=True)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):  # <- FSDP202
    # whole tensors, on rank 0 only
    state = model.state_dict()
"""
    + END,
)
SET = program(
    IMPORTS,
    WRAPPED,
    """\
FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig())  # <- FSDP202
state = model.state_dict()
"""
    + END,
)
IMPORTED = (
    "from torch.distributed.fsdp import FullStateDictConfig, StateDictType\n"
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
    "from torch.distributed.checkpoint.state_dict import (\n"
    "    StateDictOptions,\n"
    "    get_model_state_dict,\n"
    ")\n"
    "from torch.distributed.device_mesh import init_device_mesh\n"
    "from torch.distributed.fsdp import fully_shard\n",
)


class StateDictTypeContext(MigrationRule):
    """`FSDP.state_dict_type` or `FSDP.set_state_dict_type` is used.

    ## What it does
    Finds `with FSDP.state_dict_type(...)` blocks and `FSDP.set_state_dict_type(...)`.

    ## Why is this bad?
    They are deprecated and say so with a FutureWarning ("FSDP.state_dict_type() and
    FSDP.set_state_dict_type() are being deprecated"), and they do nothing for a model that
    `fully_shard` shards.

    ## Fix safety
    Safe, as a part of the migration of the whole program: `get_model_state_dict` and
    `set_model_state_dict` with the same kind of state. Where FSDP1 kept a whole state on rank 0's GPU
    (`rank0_only=True, offload_to_cpu=False`), it is on rank 0's CPU then. The getters and setters are right
    for models of FSDP1 and of FSDP2, so this is also done where a framework wraps the model.

    ## Since
    torch 2.2, where the getters and setters came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP202"
    name = "fsdp1-state-dict-type"
    severity = Severity.WARNING
    fixable = Safety.SAFE
    bad = (
        Bad(
            BLOCK,
            symptom=Symptom(prints="^0 tensors$"),
            changes=(
                IMPORTED,
                (
                    'model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"))\n',
                    SHARDED,
                ),
                (
                    """\
config = FullStateDictConfig(offload_to_cpu=False, rank0_only=True)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
    # whole tensors, on rank 0 only
    state = model.state_dict()
""",
                    """\
config = StateDictOptions(full_state_dict=True, cpu_offload=True)
# whole tensors, on rank 0 only
state = get_model_state_dict(model, options=config)
""",
                ),
            ),
            healthy="^0 tensors$",
        ),
        Bad(
            SET,
            symptom=Symptom(prints="^2 tensors$"),
            changes=(
                IMPORTED,
                (
                    'model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"))\n',
                    SHARDED,
                ),
                (
                    """\
FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig())
state = model.state_dict()
""",
                    """\
state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
""",
                ),
            ),
            healthy="^2 tensors$",
        ),
    )
    good = (
        Good(OWN_CLASS, why="a class of the user's own that is called FSDP"),
        Good(FSDP2, why="no state is taken"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            api = event.api.removeprefix("FSDP.")
            if api in STATE_APIS and not fsdp1_on_fsdp2(trace, event):
                yield self.finding(
                    event,
                    f"`FSDP.{api}` is deprecated and has no effect in FSDP2",
                    help="Use `get_model_state_dict` and `set_model_state_dict` of "
                    "`torch.distributed.checkpoint.state_dict`.",
                )
