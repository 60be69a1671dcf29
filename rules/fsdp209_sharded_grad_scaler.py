"""FSDP209: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.examples import FSDP2, OWN_CLASS, program
from fsdplint.migration.rule import MigrationRule
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.trace import Fsdp1Used, Trace

WRAPPED = (
    'model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"))\n',
    """\
model = fully_shard(
    nn.Linear(8, 4), mesh=init_device_mesh("cpu", (dist.get_world_size(),))
)
""",
)
STEP = """\
loss = model(torch.randn(4, 8)).pow(2).mean()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
print(f"scale {scaler.get_scale():.0f}")
dist.destroy_process_group()
"""
BODY = """\
model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"))  # <- FSDP201
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
IMPORTED = (
    """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
""",
    """\
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
""",
)
CPU = program(
    IMPORTED[0],
    BODY,
    'scaler = ShardedGradScaler("cpu", init_scale=1024.0)  # <- FSDP209\n' + STEP,
)
OFF = program(
    IMPORTED[0],
    BODY,
    "scaler = ShardedGradScaler(enabled=False)  # <- FSDP209\n" + STEP,
)


class Fsdp1GradScaler(MigrationRule):
    """FSDP1's `ShardedGradScaler` scales the loss.

    ## What it does
    Finds `ShardedGradScaler(...)`.

    ## Why is this bad?
    It is right for FSDP1, where each rank sees its own part of the gradients. With DTensors
    `torch.amp.GradScaler` agrees on overflows between all ranks, and `ShardedGradScaler` belongs to what goes
    away with FSDP1.

    ## Fix safety
    Safe, as a part of the migration of the whole program.

    ## Since
    torch 2.5, where `torch.amp.GradScaler` learned of DTensors.

    ## References
    - https://github.com/pytorch/pytorch/pull/132816
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP209"
    name = "fsdp1-grad-scaler"
    severity = Severity.INFO
    fixable = Safety.SAFE
    bad = (
        Bad(
            CPU,
            symptom=Symptom(prints=r"^scale 1024$"),
            changes=(
                IMPORTED,
                WRAPPED,
                ('ShardedGradScaler("cpu", ', 'torch.amp.GradScaler("cpu", '),
            ),
            healthy=r"^scale 1024$",
        ),
        Bad(
            OFF,
            symptom=Symptom(prints=r"^scale 1$"),
            changes=(
                IMPORTED,
                WRAPPED,
                ("ShardedGradScaler(", 'torch.amp.GradScaler("cuda", '),
            ),
            healthy=r"^scale 1$",
        ),
    )
    good = (
        Good(OWN_CLASS, why="no FSDP1"),
        Good(FSDP2, why="no FSDP1"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            if event.api == "ShardedGradScaler":
                yield self.finding(
                    event,
                    "`ShardedGradScaler` is FSDP1's",
                    help="Use `torch.amp.GradScaler`, which knows DTensors.",
                )
