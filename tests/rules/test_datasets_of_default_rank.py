"""FSDP511 on datasets of the program that split by a rank which nobody passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset

class Rows(IterableDataset):
    def __init__(self, rows, rank=0, world_size=1):
        self.rows = rows
        self.rank = {rank}
        self.world_size = world_size

    def __iter__(self):
        for number, row in enumerate(self.rows):
            if number % self.world_size == self.rank:
                yield row

dist.init_process_group("gloo")
model = fully_shard(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.ones(64, 8)
for batch in DataLoader({made}, batch_size=4):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def count(folder: Path, made: str, rank: str = "rank") -> int:
    file = folder / "train.py"
    file.write_text(PROGRAM.format(made=made, rank=rank))
    rule = rule_by_code("FSDP511")
    assert rule is not None
    return len(check(load([file]), [rule()]))


@pytest.mark.parametrize("made", ["Rows(rows)", "Rows(rows, world_size=2)", "Rows(rows, 0, 1)"])
def test_all_ranks_have_the_default(tmp_path: Path, made: str) -> None:
    assert count(tmp_path, made) == 1


@pytest.mark.parametrize(
    "made",
    [
        "Rows(rows, dist.get_rank(), dist.get_world_size())",
        "Rows(rows, rank=int(os.environ['RANK']))",
        "Rows(rows[dist.get_rank() :: 2])",
    ],
)
def test_each_rank_has_its_own_rows(tmp_path: Path, made: str) -> None:
    assert count(tmp_path, made) == 0


def test_the_constructor_asks_for_the_rank(tmp_path: Path) -> None:
    assert count(tmp_path, "Rows(rows)", "rank or dist.get_rank()") == 0
