"""FSDP204: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.examples import FSDP2, OWN_CLASS, program
from fsdplint.migration.rule import MigrationRule, in_fsdp1
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.trace import Clipped, Trace

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
IMPORTED = (
    IMPORT,
    "from torch.distributed.device_mesh import init_device_mesh\n"
    "from torch.distributed.fsdp import fully_shard\n",
)
WRAPPED = (
    'model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"))\n',
    """\
model = fully_shard(
    nn.Linear(8, 4), mesh=init_device_mesh("cpu", (dist.get_world_size(),))
)
""",
)
BODY = """\
model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"))  # <- FSDP201
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOGGED = program(
    IMPORT,
    BODY,
    """\
for step in range(2):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    norm = model.clip_grad_norm_(0.5)  # <- FSDP204
    optimizer.step()
    optimizer.zero_grad()
    print(f"norm {norm:.3f}")
dist.destroy_process_group()
""",
)
PLAIN = program(
    IMPORT,
    BODY,
    """\
loss = model(torch.randn(4, 8)).pow(2).mean()
loss.backward()
model.clip_grad_norm_(max_norm=1.0, norm_type=2)  # <- FSDP204
optimizer.step()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
""",
)


class Fsdp1ClipMethod(MigrationRule):
    """Gradients are clipped by FSDP1's method `clip_grad_norm_`.

    ## What it does
    Finds `model.clip_grad_norm_(...)` of a model that `FullyShardedDataParallel` wraps.

    ## Why is this bad?
    It is right for FSDP1, but a module that `fully_shard` shards has no such method:
    `torch.nn.utils.clip_grad_norm_` knows DTensors.

    ## Fix safety
    Safe, as a part of the migration of the whole program. The norm is a DTensor then; where it is used for
    more than its `.item()`, `.full_tensor()` makes it the plain tensor that it was.

    ## Since
    torch 2.6, where `fully_shard` became public.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP204"
    name = "fsdp1-clip-method"
    severity = Severity.INFO
    fixable = Safety.SAFE
    bad = (
        Bad(
            LOGGED,
            symptom=Symptom(prints=r"norm \d\.\d{3}"),
            changes=(
                IMPORTED,
                WRAPPED,
                (
                    "model.clip_grad_norm_(0.5)",
                    "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).full_tensor()",
                ),
            ),
            healthy=r"norm \d\.\d{3}",
        ),
        Bad(
            PLAIN,
            symptom=Symptom(prints=r"loss \d"),
            changes=(
                IMPORTED,
                WRAPPED,
                (
                    "model.clip_grad_norm_(max_norm=1.0, norm_type=2)",
                    "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0, norm_type=2)",
                ),
            ),
            healthy=r"loss \d",
        ),
    )
    good = (
        Good(OWN_CLASS, why="a method of the user's own"),
        Good(FSDP2, why="no FSDP1"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Clipped):
            if event.api == "method" and any(in_fsdp1(trace, m) for m in event.modules[:1]):
                yield self.finding(
                    event,
                    "`clip_grad_norm_()` is a method of FSDP1 only",
                    help="Call `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)`.",
                )
