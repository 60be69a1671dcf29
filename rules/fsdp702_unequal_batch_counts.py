"""FSDP702: see the class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import ranks
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import BatchesEnded, Called, Event, JoinUsed, Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.rank_divergence import unmatched_collectives
from fsdplint.trace.queries.rank_matching import ran_out, same_place


class UnequalBatchCounts(Rule):
    """The ranks go through a loop that communicates a different number of times.

    ## What it does
    Finds collectives in a loop (the forward of a sharded module, a `dist.all_reduce`, ...) that all ranks
    reached at first and some ranks then reached more often than others: one rank had fewer batches,
    or left the loop early.

    A rank that makes up for it with the same collectives at another place (a pass over a dummy batch) is
    not reported, nor are loops in which nothing is shared, nor DDP under `Join`.

    ## Why is this bad?
    The rank with more batches waits in an all-gather that the others never join. They have
    gone on: the program hangs until a timeout, or the transport breaks ("Connection closed by peer" with
    gloo). Where the others go on with collectives of the same sizes, a wrong pair meets without an error
    and the hang comes later. Validation loops are the usual place: a data set is cut into slices that
    are not equally long.

    ## Since
    Always.

    ## References
    - https://docs.pytorch.org/docs/stable/data.html (`DistributedSampler`, `drop_last`)
    - pytorch/torchtitan#1618.
    """

    code = "FSDP702"
    name = "unequal-batch-counts"
    severity = Severity.ERROR
    runtime_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen: set[tuple[int, ...]] = set()
        for event in unmatched_collectives(trace):
            if event.took_part in seen or not ran_out(trace, event):
                continue
            if any(trace.before(event, JoinUsed)):
                continue  # the ranks that are done shadow the collectives of the others
            seen.add(event.took_part)  # the rest of the turn is one-sided, too
            ended = _ended(trace, event)
            yield self.finding(
                event,
                f"{_describe(trace, event)} runs {_counts(trace, event)}: a rank that has no batch left "
                "does not take part, and the others wait for it",
                help="Give every rank the same number of batches (`DistributedSampler` pads, "
                "`drop_last=True` cuts), or have the ranks agree before each turn whether all of them "
                "have a batch (`all_reduce` with `MIN`).",
                because=[
                    (end, f"ended after {end.batches} batches on {ranks(end.took_part)}")
                    for end in ended
                ],
            )

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
inputs, targets = torch.randn(13, 4)[rank::world], torch.randn(13, 1)[rank::world]
loader = DataLoader(TensorDataset(inputs, targets), batch_size=3)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)  # <- FSDP702
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {rank} has trained")
dist.barrier()
dist.destroy_process_group()
""",
            symptom=Symptom(prints="rank 1 has trained", hangs=True),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def shares(count, batch):
    # what this rank has to evaluate: every second sample, in batches
    mine = range(count)[dist.get_rank() :: dist.get_world_size()]
    for start in range(0, len(mine), batch):
        yield mine[start : start + batch]


class Evaluator:
    def __init__(self, model, inputs):
        self.model, self.inputs = model, inputs

    @torch.no_grad()
    def run(self):
        self.model.eval()
        total = torch.zeros(1)
        for indices in shares(len(self.inputs), batch=2):
            total += self.model(self.inputs[list(indices)]).sum()  # <- FSDP702
        dist.all_reduce(total)
        return total.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    print("total", Evaluator(model, torch.randn(9, 4)).run())
    dist.destroy_process_group()


main()
""",
            symptom=Symptom(hangs=True),
        ),
    )

    good = (
        Good(
            why="DDP under Join: the rank that is done shadows the collectives of the other",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = torch.randn(2 + dist.get_rank(), 3, 4)
with Join([model]):
    for batch in batches:
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
""",
        ),
        Good(
            why="every rank drops what is left over",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(13, 4))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=3, sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the ranks agree before each turn whether all of them have a batch",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Linear(4, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(torch.randn(3 + rank, 2, 4))
while True:
    batch = next(batches, None)
    going = torch.tensor(0 if batch is None else 1)
    dist.all_reduce(going, dist.ReduceOp.MIN)
    if not going:
        break
    model(batch).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
""",
        ),
        Good(
            why="a rank without a batch runs a dummy one at another place",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Linear(4, 1)
fully_shard(model)
batches = list(torch.randn(3 - rank, 2, 4))
total = 0.0
with torch.no_grad():
    for batch in batches:
        total += model(batch).sum().item()
    for _ in range(3 - len(batches)):
        model(torch.zeros(2, 4))
dist.barrier()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the longer loop of one rank calls a model that is not sharded",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
teacher, model = nn.Linear(4, 1), nn.Linear(4, 1)
fully_shard(model)
targets = [teacher(x).detach() for x in torch.randn(3 + 2 * rank, 2, 4)]
for x, y in zip(torch.randn(3, 2, 4), targets):
    (model(x) - y).pow(2).mean().backward()
dist.destroy_process_group()
""",
        ),
    )


def _describe(trace: Trace, event: Event) -> str:
    if isinstance(event, Called):
        return f"the forward of sharded `{class_name(trace, event.module)}`"
    return f"`{str(getattr(event, 'api', event.kind)).rpartition('.')[2]}`"


def _counts(trace: Trace, event: Event) -> str:
    """Such as "3 times on rank 0 and 2 times on rank 1"."""
    counts: Counter[int] = Counter(dict.fromkeys(trace.ends, 0))
    for other in trace:
        if same_place(other, event):
            counts.update(other.took_part)
    by_count: dict[int, list[int]] = {}
    for rank, count in counts.items():
        by_count.setdefault(count, []).append(rank)
    parts = [
        f"{count} time{'' if count == 1 else 's'} on {ranks(sorted(by_count[count]))}"
        for count in sorted(by_count, reverse=True)
    ]
    return " and ".join(parts)


def _ended(trace: Trace, event: Event) -> list[BatchesEnded]:
    """The loop that has ended on ranks that did not take part, the last one."""
    found = [end for end in trace.of(BatchesEnded) if not set(end.took_part) & set(event.took_part)]
    return found[-1:]
