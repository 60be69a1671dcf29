"""FSDP511 in programs that split one of two datasets, or that send other data than batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import time

import torch
import torch.distributed as dist
from datasets import load_dataset
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset


class Texts(IterableDataset):
    def __init__(self, rows, length):
        self.rows = rows
        self.length = length

    def __iter__(self):
        for row in self.rows:
            yield torch.tensor(row["ids"][: self.length])


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = fully_shard(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = load_dataset("texts", split="train", streaming=True)
{train}
held = load_dataset("texts", split="test", streaming=True)
{test}
held_loader = DataLoader(Texts(held, 8), batch_size=4)
begin, steps = time.monotonic(), 0
for batch in DataLoader(Texts(rows, 8), batch_size=4):
    {first}
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
    stop = False
    if rank == 0:
        if steps >= 100:
            stop = True
        if time.monotonic() - begin > 3600:
            stop = True
    {last}
    model.eval()
    for other in held_loader:
        model(other)
    model.train()
"""
USUAL = {"train": "pass", "test": "pass", "first": "pass", "last": "pass"}
SPLIT = "{0} = {0}.shard(num_shards=size, index=rank)"
TELL = "flag = torch.tensor(stop, dtype=torch.bool)\n    dist.broadcast(flag, src=0)\n    if flag.item():\n        break"


def found(tmp_path: Path, **parts: str) -> int:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(**{**USUAL, **parts}))
    rule = rule_by_code("FSDP511")
    assert rule is not None
    return len(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"test": SPLIT.format("held")},
        {"last": TELL},
        {"last": TELL.replace("torch.tensor(stop, dtype=torch.bool)", "torch.tensor([stop])")},
        {"last": TELL.replace("stop, dtype", "int(stop), dtype")},
        {"test": SPLIT.format("held"), "last": TELL},
    ],
)
def test_all_ranks_train_on_the_same(tmp_path: Path, parts: dict[str, str]) -> None:
    assert found(tmp_path, **parts) == 1


@pytest.mark.parametrize(
    "parts",
    [
        {"train": SPLIT.format("rows")},
        {"train": SPLIT.format("rows"), "test": SPLIT.format("held"), "last": TELL},
        {"train": "parts = rows.shard(num_shards=size, index=rank)\nrows = parts.take(1000)"},
        {"train": "rows = take(rows, rank, size)"},
        {"test": "held = held.shard(num_shards=size, index=rank).take(10)"},
        {"first": "batch = batch[rank::size]"},
        {"first": "batch = split(batch, rank)"},
        {"first": "dist.broadcast(batch, src=0)"},
        {"test": SPLIT.format("held"), "first": "batch = batch[rank::size]"},
    ],
)
def test_ranks_may_train_on_other_data(tmp_path: Path, parts: dict[str, str]) -> None:
    assert found(tmp_path, **parts) == 0
