"""Loops and batches that the data of each rank decide: how many turns, and whether there is one."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import findings, program

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate


class Rows(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.full((8,), float(index)), index


class Readable(Rows):
    def __getitem__(self, index):
        try:
            return super().__getitem__(index)
        except OSError:
            return None


def collate_present(samples):
    samples = [sample for sample in samples if sample is not None]
    if not samples:
        return None
    return default_collate(samples)


def collate_filtered(samples):
    samples = list(filter(lambda sample: sample is not None, samples))
    if len(samples) == 0:
        return None
    return default_collate(samples)


def collate_all(samples):
    return default_collate(samples)


dist.init_process_group("nccl")
model = fully_shard(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
rows, readable = Rows(), Readable()
sampler = DistributedSampler(rows)
"""
OF_NUMBERS = """\
losses = []
for x, y in DataLoader(rows, batch_size=4, sampler=sampler):
    loss = model(x).sum()
    loss.backward()
    losses.append(loss.item())
{body}
    optimizer.step()
    optimizer.zero_grad()
"""
OF_RANKS = {
    "largest": "for _ in range(y.max().item()):\n    model(x)",
    "sum": "count = (y == 3).sum().item()\nfor _ in range(count):\n    model(x)",
    "bounded": "count = int((y == 3).sum())\nfor _ in range(1, min(count, 4)):\n    model(x)",
    "list that grows": "if len(losses) > 10 and losses[-1] < 0.1:\n    break",
}
OF_ALL = {
    "size": "for _ in range(x.size(1)):\n    model(x)",
    "length": "for _ in range(len(x)):\n    model(x)",
    "reduced": (
        "count = y.max()\ndist.all_reduce(count, op=dist.ReduceOp.MAX)\n"
        "for _ in range(count.item()):\n    model(x)"
    ),
    "list that grows": "if len(losses) > 10:\n    break",
}


@pytest.mark.parametrize("body", OF_RANKS.values(), ids=OF_RANKS.keys())
def test_numbers_of_own_data_decide_turns(tmp_path: Path, body: str) -> None:
    text = OF_NUMBERS.format(body=textwrap.indent(body, "    "))
    assert findings(program(tmp_path, text, header=HEAD), "FSDP501")


@pytest.mark.parametrize("body", OF_ALL.values(), ids=OF_ALL.keys())
def test_numbers_that_all_ranks_have_decide_turns(tmp_path: Path, body: str) -> None:
    text = OF_NUMBERS.format(body=textwrap.indent(body, "    "))
    assert not findings(program(tmp_path, text, header=HEAD), "FSDP501")


OF_BATCHES = """\
for batch in DataLoader({rows}, batch_size=4, sampler=sampler, collate_fn={collate}):
    if batch is None:
        continue
    x, y = batch
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("collate", ["collate_present", "collate_filtered"])
def test_a_batch_that_a_rank_may_lack(tmp_path: Path, collate: str) -> None:
    text = OF_BATCHES.format(rows="readable", collate=collate)
    assert findings(program(tmp_path, text, header=HEAD), "FSDP501")


@pytest.mark.parametrize(
    ("rows", "collate"), [("readable", "collate_all"), ("rows", "collate_present")]
)
def test_a_batch_that_each_rank_has(tmp_path: Path, rows: str, collate: str) -> None:
    text = OF_BATCHES.format(rows=rows, collate=collate)
    assert not findings(program(tmp_path, text, header=HEAD), "FSDP501")
