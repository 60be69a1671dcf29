"""FSDP511: see the class."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Collective,
    GuardKind,
    LoaderBuilt,
    LoaderIterated,
    LoaderLeft,
    MeshBuilt,
    PickedByRank,
    Ranks,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.queries.data_passes import out_of_sight, training_passes

OWN_DATASET = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __init__(self, count):
        self.x = torch.arange(float(count)).unsqueeze(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.x[index] ** 2


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = DataLoader(Squares(16), batch_size=4, shuffle=True)  # <- FSDP511
seen = set()
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    seen.update(x.flatten().tolist())

both = [None] * dist.get_world_size()
dist.all_gather_object(both, seen)
if dist.get_rank() == 0:
    print(f"samples on rank 0: {len(both[0])}, also on rank 1: {len(both[0] & both[1])}")
dist.destroy_process_group()
"""

TENSORS = """\
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data import DataLoader, TensorDataset


def get_loader(args):
    inputs = torch.linspace(0, 1, 16).unsqueeze(1)
    dataset = TensorDataset(inputs, 2 * inputs)
    return DataLoader(  # <- FSDP511
        dataset,
        batch_size=args.batch_size,
        num_workers=0,
    )


def train(model, loader, optimizer):
    sums = []
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        sums.append(round(x.sum().item(), 3))
    return sums


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = FSDP(nn.Linear(1, 1), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sums = train(model, get_loader(args), optimizer)
    both = [None] * dist.get_world_size()
    dist.all_gather_object(both, sums)
    if dist.get_rank() == 0:
        print(f"batches {both[0]} and {both[1]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

WITH_SAMPLER = """\
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
dataset = TensorDataset(torch.arange(16.0).unsqueeze(1))
sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, batch_size=2, sampler=sampler)
for (batch,) in loader:
    model(batch).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""

SEEDED_BY_RANK = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(1, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
# From here on every rank shuffles in its own way.
torch.manual_seed(1000 + dist.get_rank())
loader = DataLoader(TensorDataset(torch.arange(64.0).unsqueeze(1)), batch_size=8, shuffle=True)
for (batch,) in loader:
    model(batch).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""

NEVER_SEEDED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = nn.Linear(1, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = DataLoader(TensorDataset(torch.arange(64.0).unsqueeze(1)), batch_size=8, shuffle=True)
for (batch,) in loader:
    model(batch).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""

PART_OF_BATCH = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Linear(1, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
# One global batch, of which each rank takes its rows.
loader = DataLoader(TensorDataset(torch.arange(16.0).unsqueeze(1)), batch_size=4, shuffle=True)
for (batch,) in loader:
    rows = batch[rank::world]
    model(rows).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""

PART_OF_DATA = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, Subset


class Part(Dataset):
    def __init__(self, values, rank, world):
        self.values = values[rank::world]

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index]


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Linear(1, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
values = torch.arange(16.0).unsqueeze(1)
own = Subset(values, range(rank, len(values), world))
for dataset in (Part(values, rank, world), own):
    for batch in DataLoader(dataset, batch_size=4, shuffle=True):
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
"""

EVALUATED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@torch.no_grad()
def evaluate(model, loader):
    return sum(model(batch).pow(2).mean().item() for (batch,) in loader)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(1, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
dataset = TensorDataset(torch.arange(16.0).unsqueeze(1))
train = DataLoader(dataset, batch_size=2, sampler=DistributedSampler(dataset))
val = DataLoader(dataset, batch_size=2)
for (batch,) in train:
    model(batch).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {dist.get_rank()} val {evaluate(model, val):.4f}")
dist.destroy_process_group()
"""


class EveryRankSameData(Rule):
    """Every rank trains on the same batches.

    ## What it does
    Finds a `DataLoader` that a sharded model is trained over and that gives every rank the same
    batches: it has no `DistributedSampler`, and neither its dataset nor the seed depends on the rank.

    It has to be certain: the dataset is a `TensorDataset`, one of torchvision's or a class of the
    program's that knows nothing of ranks; a loader that shuffles counts only where all ranks set the
    same seed; nothing is picked by rank; and the mesh has one dimension, over which the model is
    sharded.

    ## Why is this bad?
    FSDP is data parallel: the ranks' gradients are averaged, so that every rank should bring other
    samples. With the same batches everywhere the average is what one rank alone would have got, and
    N GPUs train no faster than one. There is no error, and the loss looks as usual. Two ranks:

        samples on rank 0: 16, also on rank 1: 16

    Give the loader a `DistributedSampler(dataset)` (and no `shuffle=True`), and call
    `sampler.set_epoch(epoch)` at the beginning of each epoch. There is no fix: an epoch then has fewer
    steps, on which the length of a learning rate's schedule may depend.

    ## Since
    All versions.

    ## References
    - https://docs.pytorch.org/docs/stable/data.html (`torch.utils.data.distributed.DistributedSampler`)
    - https://docs.pytorch.org/tutorials/intermediate/FSDP1_tutorial.html, which uses one
    """

    code = "FSDP511"
    name = "every-rank-same-data"
    severity = Severity.WARNING
    unanimous = True

    bad = (
        Bad(
            OWN_DATASET,
            symptom=Symptom(prints="samples on rank 0: 16, also on rank 1: 16"),
        ),
        Bad(TENSORS, symptom=Symptom(prints=r"batches (\[.+\]) and \1$")),
    )
    good = (
        Good(WITH_SAMPLER, why="the sampler gives each rank its part"),
        Good(SEEDED_BY_RANK, why="the ranks shuffle differently"),
        # Ranks that are forked, as in the tests, share their seed; real ones do not.
        Good(NEVER_SEEDED, why="without a seed every rank draws an order of its own", runs=False),
        Good(PART_OF_BATCH, why="each rank takes its rows of the batch"),
        Good(PART_OF_DATA, why="the datasets hold this rank's part"),
        Good(EVALUATED, why="what is evaluated on may be the same everywhere"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        if not trace.complete or not _only_data_parallel(trace):
            return
        if any(True for _ in trace.of(PickedByRank)):
            return
        for begun in training_passes(trace):
            if begun.alike is not True or begun.sampler is not None:
                continue
            if begun.ranks is not Ranks.ALL or out_of_sight(trace, begun.loader):
                continue
            built = first(e for e in trace.of(LoaderBuilt) if e.loader == begun.loader)
            if built is None or _sent_around(trace, begun):
                continue
            if any(guard.kind is GuardKind.CONFIG for guard in built.guards):
                continue  # perhaps the choice of a run that is not distributed
            yield self.finding(
                built,
                "every rank gets the same batches of this loader and trains on them",
                help="Give it `sampler=DistributedSampler(dataset)`, without `shuffle=True`, and call "
                "`sampler.set_epoch(epoch)` in each epoch.",
                because=[(begun, "trained on here")],
            )


_OTHER_DIMENSIONS = re.compile(r"tp|cp|sp|pp|ep|tensor|context|sequence|pipe|expert|model", re.I)


def _only_data_parallel(trace: Trace) -> bool:
    """Whether a model is sharded over all ranks, and they have nothing else to do together."""
    if not trace.shardings():
        return False
    if any("process_group" in event.options for event in trace.of(Wrapped)):
        return False
    if any(event.api == "new_group" for event in trace.of(Collective)):
        return False
    return all(
        len(mesh.shape) == 1 and not any(map(_OTHER_DIMENSIONS.search, mesh.dim_names))
        for mesh in trace.of(MeshBuilt)
    )


def _sent_around(trace: Trace, begun: LoaderIterated) -> bool:
    """Whether ranks hand data to each other in a pass: then what each gets is the program's affair."""
    for event in trace.events[begun.index + 1 :]:
        if isinstance(event, LoaderLeft) and event.loader == begun.loader:
            return False
        if isinstance(event, Collective) and re.match(r"broadcast|scatter", event.api):
            return True
    return False
