"""Loaders of which each rank gets other batches, without torch's `DistributedSampler`."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.trace.queries.own_data import own_data_tests, undecided_collectives

HEAD = """\
import logging
from os import makedirs
from random import random as draw, seed as begin
from itertools import islice as cut
from time import sleep

import datasets
import torch
import torch.distributed as dist
from datasets.distributed import split_dataset_by_node
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, Dataset, IterableDataset, Sampler, Subset

say = print
log = logging.getLogger()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = nn.Linear(4, 1)
fully_shard(model)
data = datasets.load_dataset("numbers")["train"]


class Part(Sampler):
    def __init__(self, data, rank=None, world=None):
        self.data = data
        self.rank = dist.get_rank() if rank is None else rank
        self.world = world or dist.get_world_size()

    def __iter__(self):
        return iter(list(range(len(self.data)))[self.rank :: self.world])


class Batches(Part):
    def of_epoch(self):
        order = torch.randperm(len(self.data)).tolist()
        return [order[i : i + 2] for i in range(0, len(order), 2)]

    def __iter__(self):
        for number, batch in enumerate(self.of_epoch()):
            if number % self.world == self.rank:
                yield batch


class Stream(IterableDataset):
    def __init__(self, place):
        self.place = place

    def __iter__(self):
        yield from open(f"part{self.place}.txt")


class Ordered(DistributedSampler):
    def __len__(self):
        return 8


class Logged(Sampler):
    def __init__(self, data):
        self.data = data
        self.rank = dist.get_rank()

    def __iter__(self):
        if self.rank == 0:
            print("begins")
        return iter(range(len(self.data)))

    def __repr__(self):
        return f"rank {self.rank}"


class Rows(Dataset):
    def __init__(self, data):
        self.data = data
        self.rank = dist.get_rank()
        self.device = f"cuda:{self.rank}"

    def __len__(self):
        return len(self.data)


class Moved(Rows):
    def __getitem__(self, index):
        return self.data[index].to(self.device)


class MovedHere(Rows):
    def __getitem__(self, index):
        return self.data[index].to(f"cuda:{self.rank}").cuda(self.rank)


class Reported(Rows):
    def __getitem__(self, index):
        print(f"rank {self.rank} reads row {index + self.rank}")
        return self.data[index]


class FirstLogged(Rows):
    def __getitem__(self, index):
        if not self.rank:
            log.info("first")
        return self.data[index]


class Shifted(Rows):
    def __getitem__(this, index):
        return this.data[this.place(index)]

    def place(this, index):
        return index * 2 + this.rank


class Named(Rows):
    def __getitem__(self, index):
        place = self.rank
        shifted = place
        return self.data[index + shifted]


class NamedParts(Part):
    def __iter__(self):
        first, step = 0, self.world
        first = self.rank
        return iter(range(first, len(self.data), step))


class NamedRank(Rows):
    def __getitem__(self, index):
        place = self.rank
        print(f"rank {place}")
        is_first, device = place == 0, f"cuda:{place}"
        row = self.data[index].to(device) + int(is_first)
        if place == 0:
            log.info("first")
        return self.data[index]


class Delayed(Rows):
    def __getitem__(self, index):
        assert self.rank * 2 < 100
        torch.cuda.set_device(self.rank % 8)
        sleep(self.rank * 0.1)
        makedirs(f"cache/{self.rank}")
        return self.data[index]


class Seeded(Rows):
    def __getitem__(self, index):
        begin(self.rank * 1000 + index)
        return self.data[index] + draw()


class Cut(Part):
    def __iter__(self):
        yield from cut(iter(range(len(self.data))), self.rank, None, self.world)


class Said(Rows):
    def __getitem__(self, index):
        say(f"row {index + self.rank}")
        return self.data[index]


class Listed(Rows):
    def __getitem__(self, index):
        return self.data.parts[self.rank][index]
"""
TURNS = """
for batch in loader:
    loss = model(batch).mean()
    if loss > 3:
        dist.barrier()
"""


def undecided(folder: Path, loader: str) -> list[str]:
    """The tests that keep some ranks from a collective."""
    found = program(folder, f"{loader}\n{TURNS}", header=HEAD)
    events = [event for trace in found.traces for event in undecided_collectives(trace)]
    return list(dict.fromkeys(own_data_tests(event)[-1].text for event in events))


@pytest.mark.parametrize(
    "loader",
    [
        "loader = DataLoader(split_dataset_by_node(data, rank=rank, world_size=world), batch_size=2)",
        "loader = DataLoader(split_dataset_by_node(data, rank, world), batch_size=2)",
        "loader = DataLoader(data.shard(world, rank), batch_size=2)",
        "loader = DataLoader(data.shard(num_shards=world, index=rank), batch_size=2)",
        "loader = DataLoader(Subset(data, range(rank, len(data), world)), batch_size=2)",
        "loader = DataLoader(data, batch_size=2, sampler=Part(data))",
        "loader = DataLoader(data, batch_size=2, sampler=Part(data, rank, world))",
        "loader = DataLoader(data, batch_sampler=Batches(data))",
        "loader = DataLoader(Stream(rank))",
        "loader = DataLoader(data, batch_size=2, sampler=Ordered(data))",
        "loader = DataLoader(Shifted(data), batch_size=2)",
        "loader = DataLoader(Listed(data), batch_size=2)",
        "loader = DataLoader(Seeded(data), batch_size=2)",
        "loader = DataLoader(data, batch_size=2, sampler=Cut(data))",
        "loader = DataLoader(Named(data), batch_size=2)",
        "loader = DataLoader(data, batch_size=2, sampler=NamedParts(data))",
    ],
)
def test_a_part_of_each_rank(tmp_path: Path, loader: str) -> None:
    assert undecided(tmp_path, loader) == ["loss > 3"]


@pytest.mark.parametrize(
    "loader",
    [
        "loader = DataLoader(data, batch_size=2)",
        "loader = DataLoader(split_dataset_by_node(data, 0, 2), batch_size=2)",
        "loader = DataLoader(data.shard(4, 1), batch_size=2)",
        "loader = DataLoader(Subset(data, range(0, len(data), world)), batch_size=2)",
        "loader = DataLoader(data, batch_size=2, sampler=Part(data, 0, 1))",
        "loader = DataLoader(data, batch_size=2, sampler=Logged(data))",
        "loader = DataLoader(Moved(data), batch_size=2)",
        "loader = DataLoader(MovedHere(data), batch_size=2)",
        "loader = DataLoader(Reported(data), batch_size=2)",
        "loader = DataLoader(FirstLogged(data), batch_size=2)",
        "loader = DataLoader(NamedRank(data), batch_size=2)",
        "loader = DataLoader(Stream(3))",
        "loader = DataLoader(Delayed(data), batch_size=2)",
        "loader = DataLoader(Said(data), batch_size=2)",
    ],
)
def test_the_same_part_for_all_ranks(tmp_path: Path, loader: str) -> None:
    assert undecided(tmp_path, loader) == []
