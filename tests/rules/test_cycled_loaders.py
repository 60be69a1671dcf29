"""FSDP527: loaders whose first pass `itertools.cycle` repeats."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEADER = """\
import itertools
import torch
import torch.distributed as dist
from itertools import cycle, islice
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 8))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
held = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))


def step(model, x):
    model(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def forever(loader):
    return itertools.cycle(loader)


def endless(loader):
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def restarting(loader):
    while True:
        for batch in loader:
            yield batch


"""


@pytest.mark.parametrize(
    "body",
    [
        """
        batches = itertools.cycle(loader)
        for number in range(100):
            step(model, next(batches)[0])
        """,
        """
        for (x,) in islice(cycle(loader), 100):
            step(model, x)
        """,
        """
        batches = forever(loader)
        for number in range(100):
            sampler.set_epoch(number)
            (x,) = next(batches)
            step(model, x)
        """,
        """
        for number, (x,) in enumerate(cycle(loader)):
            step(model, x)
            if number == 100:
                break
        """,
        """
        for number, (x,) in zip(range(100), itertools.cycle(loader)):
            step(model, x)
        """,
        """
        batches = iter(cycle(loader))
        for number in range(100):
            step(model, next(batches)[0])
        """,
    ],
)
def test_cycled(tmp_path: Path, body: str) -> None:
    assert len(findings(program(tmp_path, body, header=HEADER), "FSDP527")) == 1


@pytest.mark.parametrize(
    "body",
    [
        """
        batches = endless(loader)
        for number in range(100):
            step(model, next(batches)[0])
        """,
        """
        batches = restarting(loader)
        for number in range(100):
            step(model, next(batches)[0])
        """,
        """
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for (x,) in loader:
                step(model, x)
        """,
        """
        batches = cycle(held)
        for (x,) in loader:
            step(model, x)
            with torch.no_grad():
                print(model(next(batches)[0]).sum())
        """,
        """
        plain = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
        for (x,) in islice(cycle(plain), 100):
            step(model, x)
        """,
        """
        rates = cycle([0.1, 0.2])
        for (x,) in loader:
            optimizer.param_groups[0]["lr"] = next(rates)
            step(model, x)
        """,
        """
        batches = iter(loader)
        for number in range(100):
            try:
                (x,) = next(batches)
            except StopIteration:
                batches = iter(loader)
                (x,) = next(batches)
            step(model, x)
        """,
    ],
)
def test_new_passes_and_other_uses(tmp_path: Path, body: str) -> None:
    assert findings(program(tmp_path, body, header=HEADER), "FSDP527") == []
