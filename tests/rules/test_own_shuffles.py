"""FSDP516 on lists that each rank shuffles with a seed of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import glob
import os
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset


class Files(Dataset):
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return torch.load(self.names[index])


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = fully_shard(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = sorted(glob.glob("data/*.pt"))
{order}
    data = {data}
    for x in DataLoader(data, sampler={sampler}):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    set_seed({seed})
    main()
"""
SEED = '42 + int(os.environ["RANK"])'
ORDER = ("random.shuffle(names)", "train, held = names[8:], names[:8]")
SAMPLER = "DistributedSampler(data)"


def found(
    tmp_path: Path,
    *order: str,
    seed: str = SEED,
    data: str = "Files(train)",
    sampler: str = SAMPLER,
) -> int:
    path = tmp_path / "program.py"
    lines = "\n".join(f"    {line}" for line in order or ORDER)
    path.write_text(PROGRAM.format(order=lines, data=data, sampler=sampler, seed=seed))
    rule = rule_by_code("FSDP516")
    assert rule is not None
    return len(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    ("order", "data"),
    [
        (ORDER, "Files(train)"),
        (ORDER, "train"),
        (("random.shuffle(names)",), "names"),
        (("random.shuffle(names)",), "Files(names[: int(0.9 * len(names))])"),
        (("np.random.shuffle(names)",), "Files(names=names)"),
        (("order = [*range(len(names))]", "random.shuffle(order)"), "Subset(names, order[8:])"),
        (("np.random.seed(rank)", "np.random.shuffle(names)"), "Files(names)"),
    ],
)
def test_each_rank_shuffles_for_itself(tmp_path: Path, order: tuple[str, ...], data: str) -> None:
    assert found(tmp_path, *order, data=data) == 1
    sampler = "DistributedSampler(data, num_replicas=size, rank=rank, shuffle=True)"
    assert found(tmp_path, *order, data=data, sampler=sampler) == 1


@pytest.mark.parametrize("seed", ["42", "args.seed"])
def test_one_seed(tmp_path: Path, seed: str) -> None:
    assert found(tmp_path, seed=seed) == 0


@pytest.mark.parametrize(
    "order",
    [
        ("train = names[8:]", "random.shuffle(other)"),
        ("random.seed(0)", *ORDER),
        (*ORDER, "random.seed(0)", "random.shuffle(train)", "train = sorted(train)"),
        ("random.shuffle(names)", "train = sorted(names)"),
        ("train = names[rank::size]", "random.shuffle(train)"),
        ("if rank == 0:", "    random.shuffle(names)", "train = [names]",
         "dist.broadcast_object_list(train)"),
        ("held = [names]", "random.shuffle(names)", "dist.broadcast_object_list(held)",
         "train = held[0]"),
    ],
)  # fmt: skip
def test_the_order_may_be_the_same(tmp_path: Path, order: tuple[str, ...]) -> None:
    assert found(tmp_path, *order) == 0


def test_each_rank_takes_all(tmp_path: Path) -> None:
    assert found(tmp_path, sampler="None") == 0
