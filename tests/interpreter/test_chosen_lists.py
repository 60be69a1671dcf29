"""Loops over lists whose elements each rank chooses by its own data."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """\
from torch.utils.data import Dataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = fully_shard(nn.Linear(4, 1))
data = torch.randn(32, 4)


class Rows(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        return data[i], i


rows = Rows()


def evaluate(size=4):
    {code}


evaluate()
"""
KEPT = "kept = [j for j in range(rank, len(data), world) if data[j].sum() > 0]\n    "


@pytest.mark.parametrize(
    "code",
    [
        KEPT + "for j in kept:\n        model(data[j])",
        KEPT + "for n, j in enumerate(kept):\n        model(data[j])",
        KEPT + "for i in range(0, len(kept), size):\n        model(data[kept[i : i + size]])",
        KEPT + "print(len(kept))\n    for i in range(len(kept)):\n        model(data[kept[i]])",
        "kept = [x for x in data[rank::world] if x.max().item() > 1]\n    for x in kept:\n        model(x)",
        "kept = [j for j in range(rank, 32, world) if rows[j][0].unique().numel() > 3]\n"
        "    for j in kept:\n        model(rows[j][0])",
        "kept = []\n    for x in data[rank::world]:\n        if x.sum() > 0:\n            kept.append(x)\n"
        "    for x in kept:\n        model(x)",
    ],
)
def test_the_data_decide_the_number_of_turns(tmp_path: Path, code: str) -> None:
    assert len(findings(program(tmp_path, PROGRAM.format(code=code)), "FSDP501")) == 1


@pytest.mark.parametrize(
    "code",
    [
        "for j in range(rank, len(data), world):\n        model(data[j])",
        "kept = [j for j in range(rank, len(data), world)]\n    for j in kept:\n        model(data[j])",
        "kept = [j for j in range(rank, 32, world) if j < 20]\n    for j in kept:\n        model(data[j])",
        "kept = [j for j in range(32) if data[j].sum() > 0]\n    for j in kept:\n        model(data[j])",
        KEPT + "for j in kept[:size]:\n        model(data[j])",
        KEPT + "kept = kept[:size]\n    for j in kept:\n        model(data[j])",
        KEPT
        + "while len(kept) < 32:\n        kept.append(0)\n    for j in kept:\n        model(data[j])",
        KEPT + "kept += [0] * (32 - len(kept))\n    for j in kept:\n        model(data[j])",
        KEPT + "pad(kept)\n    for j in kept:\n        model(data[j])",
        KEPT + "kept.extend([0])\n    for j in kept:\n        model(data[j])",
        KEPT + "n = torch.tensor(len(kept))\n    dist.all_reduce(n, op=dist.ReduceOp.MIN)\n"
        "    for i in range(0, len(kept), size):\n        model(data[kept[i]])",
        KEPT + "for j in kept:\n        print(j)",
        "kept = []\n    for j in range(rank, 32, world):\n        if j < 20:\n            kept.append(j)\n"
        "    for j in kept:\n        model(data[j])",
    ],
)
def test_the_ranks_may_make_as_many_turns(tmp_path: Path, code: str) -> None:
    assert not findings(program(tmp_path, PROGRAM.format(code=code)), "FSDP501")
