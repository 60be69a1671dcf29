"""FSDP505: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import JoinUsed, Sharding, Trace
from fsdplint.trace.queries.common import class_name, sharded_here

FLAT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms import Join
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# Rank 1 has one batch more.
with Join([model]):  # <- FSDP505
    for batch in torch.randn(3 + rank, 2, 4):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
"""

FSDP1 = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, net):
        self.model = FSDP(net, device_id=torch.device("cpu"))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, batches):
        joined = Join([self.model], throw_on_early_termination=False)  # <- FSDP505
        with joined:
            for batch in batches:
                self.model(batch).sum().backward()
                self.optimizer.step()
                self.optimizer.zero_grad()


dist.init_process_group("gloo")
torch.manual_seed(0)
Trainer(nn.Linear(4, 4)).train(torch.randn(3 + dist.get_rank(), 2, 4))
dist.destroy_process_group()
"""

DDP = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms import Join
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model, teacher = DDP(nn.Linear(4, 4)), nn.Linear(4, 4)
fully_shard(teacher)
with torch.no_grad():
    target = teacher(torch.randn(2, 4))
with Join([model]):
    for batch in torch.randn(3, 2, 4):
        (model(batch) - target).pow(2).sum().backward()
dist.destroy_process_group()
"""

AS_LONG_AS_ALL = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 4)
fully_shard(model)
own = torch.randn(3 + dist.get_rank(), 2, 4)
# Every rank stops where the shortest does.
count = torch.tensor(len(own))
dist.all_reduce(count, op=dist.ReduceOp.MIN)
for batch in own[: int(count)]:
    model(batch).sum().backward()
dist.destroy_process_group()
"""


OWN_JOIN = """\
import contextlib

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


@contextlib.contextmanager
def Join(modules):
    yield
    dist.barrier()
    print(f"rank {dist.get_rank()} is through with {len(modules)} model")


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with Join([model]):
    for batch in torch.randn(3, 4, 8):
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
"""


class JoinWithFsdp(Rule):
    """`Join` is used with a sharded model.

    ## What it does
    Finds `torch.distributed.algorithms.Join([model])` with a model that `fully_shard` or FSDP1 shards.

    ## Why is this bad?
    `Join` lets ranks with fewer batches answer the collectives of the others. DDP and
    `ZeroRedundancyOptimizer` support it; FSDP does not:

        AttributeError: 'FSDPLinear' object has no attribute 'join_hook'

    Give every rank the same number of batches: `drop_last=True` in the sampler, or stop where the
    shortest rank does (an `all_reduce` of the counts with `ReduceOp.MIN`).

    ## Since
    torch 1.10, where `Join` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
    """

    code = "FSDP505"
    name = "join-with-fsdp"
    severity = Severity.ERROR

    bad = (
        Bad(FLAT, symptom=Symptom(raises="'FSDPLinear' object has no attribute 'join_hook'")),
        Bad(FSDP1, symptom=Symptom(raises="object has no attribute 'join_hook'")),
    )
    good = (
        Good(DDP, why="DDP supports it; the sharded model is another one"),
        Good(AS_LONG_AS_ALL, why="the ranks agree on the number of batches"),
        Good(OWN_JOIN, why="a context manager of the program's own that is called Join"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(JoinUsed):
            for module in event.modules:
                info = trace.modules.get(module)
                if info is None or info.wrapper == "ddp":
                    continue
                kind = trace.sharding(module, event)
                if kind is None:
                    continue
                how = "FSDP" if kind is Sharding.FSDP1 else "fully_shard"
                yield self.finding(
                    event,
                    f"`{class_name(trace, module)}` is sharded by `{how}`, which `Join` does not "
                    "support",
                    help="Give every rank the same number of batches.",
                    because=sharded_here(trace, module, event),
                )
                break
