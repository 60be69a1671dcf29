"""FSDP511 and FSDP512 on datasets of libraries, and in runs that end early."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import argparse
import datasets
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset


class Texts(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        for row in self.rows:
            yield torch.tensor(row["ids"])


parser = argparse.ArgumentParser()
parser.add_argument("--debug", action="store_true")
args = parser.parse_args()
dist.init_process_group("gloo")
{seed}
model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = {rows}
loader = DataLoader({dataset}, batch_size=4)
for epoch in range(3):
    if args.debug:
        break
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
"""


def _findings(folder: Path, code: str, **texts: str) -> list[Finding]:
    path = folder / "train.py"
    path.write_text(PROGRAM.format(**{"seed": "torch.manual_seed(0)", **texts}))
    rule = rule_by_code(code)
    assert rule is not None
    return check(load([path]), [rule()])


SAME = [
    'torch.load("data.pt")',
    'torch.load("data.pt")["train"]',
    'datasets.load_from_disk("data")["train"]',
    'datasets.load_dataset("name", split="train").map(tokenize)',
    'datasets.load_dataset("name", split="train").shuffle(seed=1)',
]


@pytest.mark.parametrize("rows", SAME)
@pytest.mark.parametrize("dataset", ["rows", "Texts(rows)"])
def test_every_rank_loads_the_same_dataset(tmp_path: Path, rows: str, dataset: str) -> None:
    assert len(_findings(tmp_path, "FSDP511", rows=rows, dataset=dataset)) == 1


OTHER = [
    'torch.load(f"data{dist.get_rank()}.pt")',
    'torch.load("data.pt") if dist.get_rank() == 0 else receive()',
    'datasets.load_dataset("name", split="train").shard(2, dist.get_rank())',
    'datasets.load_dataset(f"part{dist.get_rank()}")["train"]',
    'read("data")',
]


@pytest.mark.parametrize("rows", OTHER)
@pytest.mark.parametrize("dataset", ["rows", "Texts(rows)"])
def test_each_rank_may_have_its_own_rows(tmp_path: Path, rows: str, dataset: str) -> None:
    assert not _findings(tmp_path, "FSDP511", rows=rows, dataset=dataset)


def test_each_rank_shuffles_in_its_own_way(tmp_path: Path) -> None:
    rows = 'datasets.load_dataset("name", split="train").shuffle()'
    assert not _findings(tmp_path, "FSDP511", rows=rows, dataset="rows", seed="")
