"""FSDP205: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.examples import FSDP2, OWN_CLASS, program
from fsdplint.migration.rule import MigrationRule, in_fsdp1
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.trace import BackwardRun, SyncSwitched, Trace

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
BLOCK = program(
    IMPORT,
    BODY,
    """\
with model.no_sync():  # <- FSDP205
    # the gradients of these stay on their rank
    for _ in range(2):
        model(torch.randn(4, 8)).pow(2).mean().backward()
loss = model(torch.randn(4, 8)).pow(2).mean()
loss.backward()
optimizer.step()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
""",
)
CHOICE = program(
    "from contextlib import nullcontext\n\n" + IMPORT,
    BODY,
    """\
for step in range(4):
    last = step % 2 == 1
    with nullcontext() if last else model.no_sync():  # <- FSDP205
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
""",
)


class Fsdp1NoSync(MigrationRule):
    """Gradients are accumulated under FSDP1's `no_sync`.

    ## What it does
    Finds `with model.no_sync():` of a model that `FullyShardedDataParallel` wraps, also where it is chosen
    (`with model.no_sync() if accumulate else nullcontext():`). `getattr(model, "no_sync", nullcontext)` is
    found where a backward pass follows: without FSDP1 it gives the default, and nothing accumulates.

    ## Why is this bad?
    It is right for FSDP1, but a module that `fully_shard` shards has no such method: it has the switch
    `set_requires_gradient_sync`.

    ## Fix safety
    Safe, as a part of the migration of the whole program: the switch is off where `no_sync` held, and on
    again behind it. With parameters in bfloat16 and gradients reduced in float32, FSDP2 accumulates in
    float32 and FSDP1 did in bfloat16.

    ## Since
    torch 2.6, where `fully_shard` became public.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP205"
    name = "fsdp1-no-sync"
    severity = Severity.INFO
    fixable = Safety.SAFE
    bad = (
        Bad(
            BLOCK,
            symptom=Symptom(prints=r"loss \d"),
            changes=(
                IMPORTED,
                WRAPPED,
                (
                    """\
with model.no_sync():
    # the gradients of these stay on their rank
    for _ in range(2):
        model(torch.randn(4, 8)).pow(2).mean().backward()
""",
                    """\
model.set_requires_gradient_sync(False)
# the gradients of these stay on their rank
for _ in range(2):
    model(torch.randn(4, 8)).pow(2).mean().backward()
model.set_requires_gradient_sync(True)
""",
                ),
            ),
            healthy=r"loss \d",
        ),
        Bad(
            CHOICE,
            symptom=Symptom(prints=r"loss \d"),
            changes=(
                (
                    "from contextlib import nullcontext\n\n" + IMPORT,
                    "\nfrom torch.distributed.fsdp import fully_shard\n"
                    "from torch.distributed.device_mesh import init_device_mesh\n",
                ),
                WRAPPED,
                (
                    """\
    with nullcontext() if last else model.no_sync():
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
""",
                    """\
    model.set_requires_gradient_sync(last)
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
""",
                ),
            ),
            healthy=r"loss \d",
        ),
    )
    good = (
        Good(OWN_CLASS, why="no FSDP1"),
        Good(FSDP2, why="no FSDP1"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(SyncSwitched):
            if event.optional and not any(True for _ in trace.after(event, BackwardRun)):
                continue  # FSDP2's model has no such method, and nothing is reduced
            if event.api == "no_sync" and in_fsdp1(trace, event.module):
                yield self.finding(
                    event,
                    "`no_sync()` is a method of FSDP1 only",
                    help="Call `model.set_requires_gradient_sync(...)` before each backward pass.",
                )
