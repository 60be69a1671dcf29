"""FSDP299: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.rule import Bad, Finding, Good, Severity, Symptom
from fsdplint.rules.common import fsdp1_on_fsdp2
from fsdplint.rules.migration.examples import FSDP2, OWN_CLASS, program
from fsdplint.rules.migration.rule import OPTIMIZER_APIS, STATE_APIS, MigrationRule
from fsdplint.trace import Fsdp1Used, Trace

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
BODY = """\
model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"))  # <- FSDP201
"""
SUMMON = program(
    IMPORT,
    BODY,
    """\
with FSDP.summon_full_params(model):  # <- FSDP299
    print(sum(p.numel() for p in model.parameters()), "numbers")
dist.destroy_process_group()
""",
)
MODULES = program(
    IMPORT,
    BODY,
    """\
print(len(FSDP.fsdp_modules(model)), "units")  # <- FSDP299
dist.destroy_process_group()
""",
)
HANDLED = (*STATE_APIS, *OPTIMIZER_APIS, "ShardedGradScaler")


class OtherFsdp1Use(MigrationRule):
    """A part of FSDP1's API is used that this tool does not rewrite yet.

    ## What it does
    Finds what remains of FSDP1's API: `summon_full_params`, `fsdp_modules`, `register_comm_hook`, `enable_wrap`
    and `wrap`, `FSDP.apply` and others.

    ## Why is this bad?
    None of it does anything for a model that `fully_shard` shards (`summon_full_params` gathers nothing there,
    without an error), so the program is not migrated while it is there.

    ## Since
    torch 2.6, where `fully_shard` became public.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP299"
    name = "other-fsdp1-use"
    severity = Severity.INFO
    bad = (
        Bad(SUMMON, symptom=Symptom(prints=r"^36 numbers$")),
        Bad(MODULES, symptom=Symptom(prints=r"^1 units$")),
    )
    good = (
        Good(OWN_CLASS, why="no FSDP1"),
        Good(FSDP2, why="no FSDP1"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            api = event.api.removeprefix("FSDP.")
            if api not in HANDLED and not fsdp1_on_fsdp2(trace, event):
                yield self.finding(
                    event,
                    f"`{api}` of FSDP1 has no rewrite to FSDP2 yet",
                    help="Rewrite it by hand; the rest of the program is migrated then.",
                )
