"""FSDP512: see the class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import EpochSet, GuardKind, LoaderIterated, SamplerBuilt, Trace
from fsdplint.trace.queries.data_passes import out_of_sight, training_passes

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FLAT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 3

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(1, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

dataset = TensorDataset(torch.arange(16.0).unsqueeze(1))
sampler = DistributedSampler(dataset)  # <- FSDP512
loader = DataLoader(dataset, batch_size=2, sampler=sampler)
for epoch in range(EPOCHS):
    seen = []
    for (batch,) in loader:
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen += batch.flatten().int().tolist()
    if dist.get_rank() == 0:
        print(f"epoch {epoch} order {seen}")
dist.destroy_process_group()
"""

TRAINER = """\
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Numbers(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.tensor([float(index)])


def build_loader(dataset, batch_size):
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=DistributedSampler(dataset, shuffle=True, drop_last=True),  # <- FSDP512
        pin_memory=False,
    )


class Trainer:
    def __init__(self, model, loader):
        self.model = fully_shard(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.loader = loader

    def run_epoch(self):
        order = []
        for step, batch in enumerate(self.loader):
            self.model(batch).pow(2).mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            order.append(batch.sum().item())
        return order

    def fit(self, epochs):
        for epoch in range(epochs):
            # one pass over the data
            order = self.run_epoch()
            print(f"rank {dist.get_rank()} epoch {epoch} batches {order}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(nn.Linear(1, 1), build_loader(Numbers(16), batch_size=2))
    trainer.fit(args.epochs)
    dist.destroy_process_group()
"""

FSDP1_BY_STEPS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main(max_steps=8):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = FSDP(nn.Linear(1, 1), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    dataset = TensorDataset(torch.arange(16.0).unsqueeze(1))
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank)  # <- FSDP512
    loader = DataLoader(dataset, batch_size=2, sampler=sampler)
    step, turn = 0, 0
    while step < max_steps:
        sums = []
        for (batch,) in loader:
            model(batch).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            sums.append(batch.sum().item())
        print(f"rank {rank} turn {turn} batches {sums}")
        turn += 1
    dist.destroy_process_group()


main()
"""

SET_ON_LOADER = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def set_epoch(loaders, epoch):
    for loader in loaders:
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)


def train(model, optimizer, loader):
    for (batch,) in loader:
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(1, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
dataset = TensorDataset(torch.arange(8.0).unsqueeze(1))
loader = DataLoader(dataset, batch_size=2, sampler=DistributedSampler(dataset))
for epoch in range(2):
    set_epoch([loader], epoch)
    train(model, optimizer, loader)
dist.destroy_process_group()
"""

EVALUATION = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@torch.no_grad()
def evaluate(model, loader):
    total = torch.zeros(())
    for (batch,) in loader:
        total += model(batch).pow(2).mean()
    dist.all_reduce(total)
    return total.item()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(1, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
dataset = TensorDataset(torch.arange(8.0).unsqueeze(1))
train_sampler = DistributedSampler(dataset)
train_loader = DataLoader(dataset, batch_size=2, sampler=train_sampler)
val_loader = DataLoader(dataset, batch_size=2, sampler=DistributedSampler(dataset))
for epoch in range(2):
    train_sampler.set_epoch(epoch)
    for step, (batch,) in enumerate(train_loader):
        if step % 2 == 0:
            evaluate(model, val_loader)
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    evaluate(model, val_loader)
dist.destroy_process_group()
"""

ONE_EPOCH = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(1, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
dataset = TensorDataset(torch.arange(8.0).unsqueeze(1))
loader = DataLoader(dataset, batch_size=2, sampler=DistributedSampler(dataset))
for (batch,) in loader:
    model(batch).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""

IN_ORDER = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(1, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
dataset = TensorDataset(torch.arange(8.0).unsqueeze(1))
# A time series: every epoch goes through it from the beginning.
loader = DataLoader(dataset, batch_size=2, sampler=DistributedSampler(dataset, shuffle=False))
for epoch in range(2):
    for (batch,) in loader:
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
"""

OWN_COUNT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Reshuffled(DistributedSampler):
    def __iter__(self):
        order = super().__iter__()
        self.epoch += 1
        return order


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(1, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
dataset = TensorDataset(torch.arange(8.0).unsqueeze(1))
loaders = [
    DataLoader(dataset, batch_size=2, sampler=Reshuffled(dataset)),
    DataLoader(dataset, batch_size=2, sampler=DistributedSampler(dataset)),
]
for epoch in range(2):
    loaders[1].sampler.epoch = epoch
    for loader in loaders:
        for (batch,) in loader:
            model(batch).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
dist.destroy_process_group()
"""


class EpochNeverSet(Rule):
    """A shuffling `DistributedSampler` goes through several epochs without `set_epoch`.

    ## What it does
    Finds a `DistributedSampler` that shuffles, whose loader the program trains over more than once
    and which is never told the epoch.

    Loaders that are only evaluated on, samplers with `shuffle=False`, subclasses with an order of
    their own, and samplers that code out of sight gets hold of are left alone.

    ## Why is this bad?
    The sampler draws its order from `seed + epoch`, and the epoch stays 0 until `set_epoch` is called:
    every epoch has the same batches in the same order. There is no error. Two ranks and 16 samples:

        epoch 0 order [5, 10, 6, 12, 14, 3, 7, 2]
        epoch 1 order [5, 10, 6, 12, 14, 3, 7, 2]

    Each rank also sees the same half of the data in every epoch and never the other.

    ## Fix safety
    Safe: `sampler.set_epoch(epoch)` becomes the first statement of the loop over the epochs. The first
    epoch keeps its order. There is no fix where the loop does not count the epochs, or where the
    sampler and its loader have no name there.

    ## Since
    All versions.

    ## References
    - https://docs.pytorch.org/docs/stable/data.html (`torch.utils.data.distributed.DistributedSampler`)
    """

    code = "FSDP512"
    name = "epoch-never-set"
    severity = Severity.WARNING
    reorders = True
    fixable = Safety.SAFE
    unanimous = True

    bad = (
        Bad(
            FLAT,
            symptom=Symptom(prints=r"epoch 0 order (\[.+\])\nepoch 1 order \1\nepoch 2 order \1$"),
            changes=(
                (
                    "for epoch in range(EPOCHS):\n",
                    "for epoch in range(EPOCHS):\n    sampler.set_epoch(epoch)\n",
                ),
            ),
            healthy=r"epoch 0 order (\[.+\])\nepoch 1 order (?!\1)(\[.+\])\nepoch 2 order (?!\1|\2)",
        ),
        Bad(
            TRAINER,
            symptom=Symptom(prints=r"epoch 0 batches (\[.+\])\nrank \d epoch 1 batches \1$"),
            changes=(
                (
                    "            # one pass over the data\n",
                    "            # one pass over the data\n"
                    "            self.loader.sampler.set_epoch(epoch)\n",
                ),
            ),
            healthy=r"epoch 0 batches (\[.+\])\nrank \d epoch 1 batches (?!\1)\[",
        ),
        Bad(
            FSDP1_BY_STEPS,
            symptom=Symptom(prints=r"turn 0 batches (\[.+\])\nrank \d turn 1 batches \1$"),
        ),
    )
    good = (
        Good(SET_ON_LOADER, why="the epoch is set through the loader, in a function of its own"),
        Good(EVALUATION, why="the order of what is only evaluated does not matter"),
        Good(ONE_EPOCH, why="one epoch has one order"),
        Good(IN_ORDER, why="a sampler that does not shuffle has no use for the epoch"),
        Good(OWN_COUNT, why="one counts its epochs itself, the other's is set as an attribute"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        if not trace.complete or not trace.shardings():
            return
        for built in trace.of(SamplerBuilt):
            passes = list(self._passes(trace, built))
            if len(passes) < 2:
                continue
            yield self.finding(
                built,
                "`set_epoch` is never called, so that every epoch has the same order",
                help="Call `sampler.set_epoch(epoch)` at the beginning of each epoch.",
                because=[(passes[-1], "the same order in every pass")],
            )

    @staticmethod
    def _passes(trace: Trace, built: SamplerBuilt) -> Iterator[LoaderIterated]:
        """The passes in one order that training makes with a sampler at one place."""
        if built.shuffle is not True or out_of_sight(trace, built.sampler):
            return
        if any(event.sampler in (built.sampler, None) for event in trace.of(EpochSet)):
            return
        passes = [p for p in training_passes(trace) if p.sampler == built.sampler]
        for one in passes:
            if one.site == passes[0].site and not out_of_sight(trace, one.loader):
                yield one

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.epochs import set_epoch_in_loop

        built, begun = finding.events
        if not isinstance(begun, LoaderIterated):
            return None
        config = {guard for guard in built.guards if guard.kind is GuardKind.CONFIG}
        if not config <= set(begun.guards):
            return None  # in other configurations there may be no such sampler
        rewrite = Rewrite()
        if not set_epoch_in_loop(rewrite, program, begun):
            return None
        return rewrite.fix("Set the sampler's epoch", Safety.SAFE)
