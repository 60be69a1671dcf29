"""FSDP203: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.examples import FSDP2, OWN_CLASS, program
from fsdplint.migration.rule import OPTIMIZER_APIS, MigrationRule
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.trace import Event, Fsdp1Used, StateTaken, Trace
from fsdplint.trace.queries.common import fsdp1_on_fsdp2

WRAPPED = """\
model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"), use_orig_params=True)  # <- FSDP201
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model(torch.randn(4, 8)).sum().backward()
optimizer.step()
"""
SHARDED = (
    'model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"), use_orig_params=True)\n',
    """\
model = fully_shard(
    nn.Linear(8, 4), mesh=init_device_mesh("cpu", (dist.get_world_size(),))
)
""",
)
END = """\
print(len(state["state"]), "parameters")
dist.destroy_process_group()
"""
BOTH_WAYS = program(
    """\
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
""",
    WRAPPED,
    """\
with FSDP.state_dict_type(  # <- FSDP202
    model,
    StateDictType.FULL_STATE_DICT,
    FullStateDictConfig(),
    FullOptimStateDictConfig(offload_to_cpu=False),
):
    state = FSDP.optim_state_dict(model, optimizer)  # <- FSDP203
    loadable = FSDP.optim_state_dict_to_load(model, optimizer, state)  # <- FSDP203
    optimizer.load_state_dict(loadable)
"""
    + END,
)
LEGACY = program(
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
    WRAPPED,
    "state = FSDP.full_optim_state_dict(model, optimizer, rank0_only=False)  # <- FSDP203\n" + END,
)


class OptimStateDict(MigrationRule):
    """The optimizer's state is taken or loaded by a method of the FSDP class.

    ## What it does
    Finds `FSDP.optim_state_dict`, `FSDP.optim_state_dict_to_load` and the older `full_optim_state_dict`,
    `scatter_full_optim_state_dict`, `shard_full_optim_state_dict` and their like.

    ## Why is this bad?
    They only know FSDP1's flat parameters. For a model that `fully_shard` shards they end with
    `AttributeError: 'NoneType' object has no attribute 'optim_state_dict_config'`, and the older ones are
    deprecated.

    ## Fix safety
    Safe, as a part of the migration of the whole program: `get_optimizer_state_dict` and
    `set_optimizer_state_dict` give and take the same states by parameter name. A state that FSDP1 put on every
    rank's CPU is on rank 0's CPU where only rank 0 writes it, else on every rank's device.

    ## Since
    torch 2.2, where the getters and setters came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP203"
    name = "fsdp1-optim-state-dict"
    severity = Severity.WARNING
    fixable = Safety.SAFE
    bad = (
        Bad(
            BOTH_WAYS,
            symptom=Symptom(prints="^2 parameters$"),
            changes=(
                SHARDED,
                (
                    """\
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
""",
                    """\
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
""",
                ),
                (
                    """\
with FSDP.state_dict_type(
    model,
    StateDictType.FULL_STATE_DICT,
    FullStateDictConfig(),
    FullOptimStateDictConfig(offload_to_cpu=False),
):
    state = FSDP.optim_state_dict(model, optimizer)
    loadable = FSDP.optim_state_dict_to_load(model, optimizer, state)
    optimizer.load_state_dict(loadable)
""",
                    """\
options = StateDictOptions(full_state_dict=True)
state = get_optimizer_state_dict(model, optimizer, options=options)
set_optimizer_state_dict(model, optimizer, state, options=options)
""",
                ),
            ),
            healthy="^2 parameters$",
        ),
        Bad(
            LEGACY,
            symptom=Symptom(prints="^2 parameters$"),
            changes=(
                SHARDED,
                (
                    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
                    """\
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
""",
                ),
                (
                    "FSDP.full_optim_state_dict(model, optimizer, rank0_only=False)",
                    """\
get_optimizer_state_dict(
    model, optimizer, options=StateDictOptions(full_state_dict=True)
)""",
                ),
            ),
            healthy="^2 parameters$",
        ),
    )
    good = (
        Good(OWN_CLASS, why="a class of the user's own that is called FSDP"),
        Good(FSDP2, why="no state is taken"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        fsdp2 = [e.site for e in trace.of(Fsdp1Used) if fsdp1_on_fsdp2(trace, e)]
        for event in trace.events:
            api = _api(event)
            if api in OPTIMIZER_APIS and event.site not in fsdp2:
                yield self.finding(
                    event,
                    f"`FSDP.{api}` only knows FSDP1's flat parameters",
                    help="Use `get_optimizer_state_dict` and `set_optimizer_state_dict` of "
                    "`torch.distributed.checkpoint.state_dict`.",
                )


def _api(event: Event) -> str:
    if isinstance(event, Fsdp1Used):
        return event.api.removeprefix("FSDP.")
    if isinstance(event, StateTaken) and event.api.startswith("FSDP."):
        return event.api.removeprefix("FSDP.")
    return ""
