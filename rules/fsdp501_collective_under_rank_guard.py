"""FSDP501: see the class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Called,
    Clipped,
    Event,
    Gathered,
    Guard,
    GuardKind,
    Ranks,
    Saved,
    StateLoaded,
    StateTaken,
    Trace,
)
from fsdplint.trace.queries.common import class_name, optimizer_of
from fsdplint.trace.queries.rank_divergence import unmatched_collectives
from fsdplint.trace.queries.rank_matching import ran_out

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

STATE_ON_RANK0 = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()

full = StateDictOptions(full_state_dict=True, cpu_offload=True)
if rank == 0:
    print("saving")
    state = get_model_state_dict(model, options=full)  # <- FSDP501
    torch.save(state, os.path.join(tempfile.mkdtemp(), "net.pt"))
    print(f"saved {len(state)} tensors")
dist.barrier()
dist.destroy_process_group()
"""

CHECKPOINT_OF_FSDP1 = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save_checkpoint(model, folder):
    if dist.get_rank() != 0:
        return
    path = os.path.join(folder, "net.pt")
    torch.save(model.state_dict(), path)  # <- FSDP501
    print("saved", path)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = tempfile.mkdtemp()
    for epoch in range(2):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        save_checkpoint(model, folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

BARRIER_IN_GUARD = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class Checkpointer:
    def __init__(self, folder):
        self.folder = folder
        self.main = dist.get_rank() == 0

    def save(self, model):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(model, options=options)
        if self.main:
            torch.save(state, os.path.join(self.folder, "net.pt"))
            print(f"saved {len(state)} tensors")
            dist.barrier()  # <- FSDP501


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
checkpointer = Checkpointer(tempfile.mkdtemp())
for step in range(2):
    model(torch.randn(4, 8)).sum().backward()
    checkpointer.save(model)
print("done")
dist.destroy_process_group()
"""

EVALUATE_ON_RANK0 = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    total = 0.0
    for batch in batches:
        total += model(batch).pow(2).mean().item()  # <- FSDP501
    model.train()
    return total / len(batches)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if not dist.get_rank():
        print(f"epoch {epoch}: {evaluate(model, torch.randn(3, 4, 8)):.4f}")
dist.destroy_process_group()
"""

FULL_TENSOR_ON_RANK0 = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
is_main = dist.get_rank() == 0
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
if is_main:
    weight = model[0].weight.full_tensor()  # <- FSDP501
    print(f"mean weight {weight.mean().item():.4f}")
dist.destroy_process_group()
"""

MATCHED = """\
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)

# Rank 0 first: it prepares the data, the others wait.
path = os.path.join(tempfile.gettempdir(), f"data-{os.environ['MASTER_PORT']}.pt")
if rank != 0:
    dist.barrier()
if not os.path.exists(path):
    torch.save(torch.randn(4, 8), path)
if rank == 0:
    dist.barrier()

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
loss = model(torch.load(path)).pow(2).mean()

if rank == 0:
    print("loss", loss.item())
    dist.barrier()
else:
    dist.barrier()

if rank == 0:
    message = ["stop"]
    dist.broadcast_object_list(message, src=0)
else:
    message = [None]
    dist.broadcast_object_list(message, src=0)

if rank == 0:
    parts = [torch.empty(1) for _ in range(dist.get_world_size())]
    dist.gather(loss.detach().view(1), parts)
    print("mean loss", torch.cat(parts).mean().item())
else:
    dist.gather(loss.detach().view(1), dst=0)
dist.destroy_process_group()
"""

RANK0_FIRST = """\
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


@contextlib.contextmanager
def rank0_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


def prepared(path):
    if dist.get_rank() != 0:
        dist.barrier()
    if os.path.exists(path):
        data = torch.load(path)
        if dist.get_rank() == 0:
            dist.barrier()
    else:
        assert dist.get_rank() == 0, "the others wait"
        data = torch.randn(4, 8)
        torch.save(data, path)
        dist.barrier()
    return data


dist.init_process_group("gloo")
torch.manual_seed(0)
with rank0_first():
    print("first")
data = prepared("data.pt")
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(data).sum().backward()
dist.destroy_process_group()
"""

NOTHING_GATHERED = """\
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
reference = copy.deepcopy(model)
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
loss = model(torch.randn(4, 8)).pow(2).mean()
loss.backward()
norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
if rank == 0:
    # A sharded state dict is made of what the rank has; the reference is not sharded at all.
    print(len(model.state_dict()), reference(torch.randn(4, 8)).sum().item())
    print(sum(p.numel() for p in model.parameters()), norm.item())
dist.barrier()
dist.destroy_process_group()
"""

SUBGROUP = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
first = dist.new_group([0])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
total = torch.ones(1)
if rank == 0:
    dist.all_reduce(total, group=first)
    dist.barrier(group=first)
    dist.send(total, dst=1)
elif rank == 1:
    dist.recv(total, src=0)
dist.destroy_process_group()
"""

ONE_PROCESS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
loss = model(torch.randn(4, 8)).pow(2).mean()
loss.backward()
if world_size > 1:
    dist.all_reduce(loss)
if rank == 0:
    print(f"loss {loss.item() / world_size:.4f}")
dist.destroy_process_group()
"""

WHOLE_OPTIMIZER_STATE = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).sum().backward()
optimizer.step()
whole = FSDP.full_optim_state_dict(model, optimizer, rank0_only=False)
if dist.get_rank() == 0:
    part = FSDP.optim_state_dict_to_load(model, optimizer, whole)
    print(f"the state of {len(part['state'])} parameters can be loaded")
dist.barrier()
dist.destroy_process_group()
"""

REPLICATED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
if dist.get_rank() == 0:
    options = StateDictOptions(full_state_dict=True)
    weights, moments = get_state_dict(model, optimizer, options=options)
    torch.save({"model": weights, "optimizer": moments}, "last.pt")
    model.eval()
    with torch.no_grad():
        print(f"loss {model(torch.randn(4, 8)).pow(2).mean():.4f}")
dist.barrier()
dist.destroy_process_group()
"""


class CollectiveUnderRankGuard(Rule):
    """A collective runs on one part of the ranks only.

    ## What it does
    Finds calls that every rank has to take part in, and that only one rank (or all but one) reaches:
    under `if rank == 0:`, after `if rank != 0: return`, in whatever spelling (also of the local rank).
    Collectives are the state dict of a sharded model where it is gathered (`get_model_state_dict` with
    `full_state_dict=True`, FSDP1's `state_dict()`), `full_tensor()`, forward and backward of a sharded
    model, clipping its gradients, `torch.distributed.checkpoint.save`, and those of
    `torch.distributed` itself.

    A collective that the other ranks match is fine: in the `else` of the same test, or in "rank 0
    first" (`if rank != 0: barrier()`, the work, `if rank == 0: barrier()`). So are collectives of a
    subgroup, FSDP2's own `state_dict()`, which communicates nothing, FSDP1's
    `optim_state_dict_to_load` of whole tensors that every rank has, and states, forwards and norms of models that are only replicated (a mesh whose last dimension has one rank, `NO_SHARD`).

    ## Why is this bad?
    The rank waits for others that never come. They wait for it at their next collective, and the job
    stands still until NCCL's watchdog or a time limit ends it; or they pair that collective with this
    one, and the data is mixed up: an FSDP1 `state_dict()` on rank 0 was seen to "succeed" with what
    the other rank sent for its next forward. On gloo it is often an abort:
    `gloo::EnforceNotMet ... Received data size doesn't match expected size`, or "Connection closed
    by peer" where the other rank has already finished.

    ## Fix safety
    Safe: the collective moves out of the test, so that all ranks take part, and what is done with its
    result stays in it. This is done where the collective is a statement of the test's body or part of
    one, and nothing before it in the body has to come first; a `barrier()` at the end of the body moves
    behind it. What else the test asks (`step % 100 == 0 and rank == 0`) is asked where the collective
    goes too, if it is certainly alike on all ranks: of counters, settings and constants. Otherwise (an evaluation on rank 0) what is right depends on the program, and the code is
    left to you.

    ## Since
    All versions.

    ## References
    - pytorch/pytorch#73383: "All ranks will still need to call all collectives"
    - https://docs.pytorch.org/docs/stable/distributed.html (collective functions)
    """

    code = "FSDP501"
    name = "collective-under-rank-guard"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    bad = (
        Bad(
            STATE_ON_RANK0,
            symptom=Symptom(hangs=True),
            changes=(
                (
                    """\
if rank == 0:
    print("saving")
    state = get_model_state_dict(model, options=full)
""",
                    """\
state = get_model_state_dict(model, options=full)
if rank == 0:
    print("saving")
""",
                ),
            ),
            healthy=r"saved 4 tensors",
        ),
        Bad(
            CHECKPOINT_OF_FSDP1,
            symptom=Symptom(hangs=True),
            changes=(
                (
                    """\
    if dist.get_rank() != 0:
        return
    path = os.path.join(folder, "net.pt")
    torch.save(model.state_dict(), path)
""",
                    """\
    model_state = model.state_dict()
    if dist.get_rank() != 0:
        return
    path = os.path.join(folder, "net.pt")
    torch.save(model_state, path)
""",
                ),
            ),
            healthy=r"saved .*net\.pt",
        ),
        Bad(
            BARRIER_IN_GUARD,
            symptom=Symptom(hangs=True),
            changes=(
                (
                    """\
            print(f"saved {len(state)} tensors")
            dist.barrier()
""",
                    """\
            print(f"saved {len(state)} tensors")
        dist.barrier()
""",
                ),
            ),
            healthy=r"done",
        ),
        Bad(EVALUATE_ON_RANK0, symptom=Symptom(hangs=True)),
        Bad(
            FULL_TENSOR_ON_RANK0,
            symptom=Symptom(hangs=True),
            changes=(
                (
                    """\
if is_main:
    weight = model[0].weight.full_tensor()
""",
                    """\
weight = model[0].weight.full_tensor()
if is_main:
""",
                ),
            ),
            healthy=r"mean weight -?\d",
        ),
    )
    good = (
        Good(MATCHED, why="the other ranks run a counterpart"),
        Good(RANK0_FIRST, why="the barriers of the two tests meet, of which one may be stated"),
        Good(NOTHING_GATHERED, why="nothing under the test communicates"),
        Good(WHOLE_OPTIMIZER_STATE, why="each rank cuts its part out of whole tensors by itself"),
        Good(SUBGROUP, why="a subgroup of this one rank; point to point"),
        Good(ONE_PROCESS, why="a test of the number of ranks is none of the rank"),
        Good(REPLICATED, why="each rank has all of the parameters, and gathers nothing"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        groups: dict[object, list[Event]] = {}
        for event in unmatched_collectives(trace):
            if ran_out(trace, event):
                continue  # FSDP702
            guard = rank_guard(event)
            if guard is not None and guard.asserted:
                continue  # what keeps the other ranks away is elsewhere
            place = (guard.site or guard.text) if guard is not None else None
            groups.setdefault((place, event.ranks), []).append(event)
        for events in groups.values():
            yield self._finding(trace, events)

    def _finding(self, trace: Trace, events: list[Event]) -> Finding:
        event = events[0]
        guard = rank_guard(event)
        test = f" ({guard})" if guard is not None else ""
        who = {Ranks.ONE: "only one rank does", Ranks.OTHERS: "one rank does not"}.get(
            event.ranks, "only some ranks do"
        )
        finding = self.finding(
            event,
            f"{describe(trace, event)} needs every rank, but {who}{test}",
            help="Run it on all ranks, and put only what one rank has to do (write, print) under the "
            "test.",
            because=[(other, f"{describe(trace, other)} too") for other in _apart(events)],
        )
        if guard is not None and guard.site is not None:
            finding.related = ((guard.site, "the test of the rank"), *finding.related)
        return finding

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.rank_guard import move_out

        event = finding.events[0]
        guard = rank_guard(event)
        rewrite = Rewrite()
        if guard is None or not move_out(rewrite, event.site, guard, program):
            return None
        return rewrite.fix("Run the collective on all ranks", Safety.SAFE)


def rank_guard(event: Event) -> Guard | None:
    """The innermost test of the rank that keeps some ranks from the event."""
    for guard in reversed(event.guards):
        if guard.kind is GuardKind.RANK and guard.ranks.partial:
            return guard
    return None


def _apart(events: list[Event]) -> Iterator[Event]:
    """The further events, one a place, no more than a reader wants."""
    seen = {events[0].site}
    for event in events[1:]:
        if event.site not in seen and len(seen) < 5:
            seen.add(event.site)
            yield event


def describe(trace: Trace, event: Event) -> str:
    """A collective in words."""
    if isinstance(event, Called):
        return f"the forward of sharded `{class_name(trace, event.module)}`"
    if isinstance(event, Gathered):
        return f"`unshard()` of `{class_name(trace, event.module)}`"
    if isinstance(event, BackwardRun):
        return "the backward of a sharded model"
    if isinstance(event, Clipped):
        return "clipping the gradients of a sharded model"
    if isinstance(event, StateTaken | StateLoaded):
        of = event.of if isinstance(event, StateTaken) else event.into
        built = optimizer_of(trace, of)
        name = built.class_name if built is not None else class_name(trace, of)
        return f"`{event.api.rpartition('.')[2]}` of sharded `{name}`"
    if isinstance(event, Saved):
        return f"`{event.api}`"
    return f"`{getattr(event, 'api', event.kind)}`"
