"""Lists of what each rank takes in turns of its own, and samplers that pass the rank on."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEAD = """\
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Sampler, Subset, TensorDataset

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
model = nn.Linear(4, 1)
fully_shard(model)
rows = torch.load(sys.argv[1])
data = TensorDataset(rows)
"""
USE = """
for (batch,) in loader:
    if batch.sum() > 0:
        model(batch)
"""


def decides_by_own_data(folder: Path, code: str) -> bool:
    found = findings(program(folder, code + USE, header=HEAD), "FSDP501")
    assert {one.rule.code for one in found} <= {"FSDP501"}
    return bool(found)


@pytest.mark.parametrize(
    ("filled", "own"),
    [
        ("mine = [i for i in range(64) if i % ranks == rank]", True),
        ("mine = [i for i, row in enumerate(rows) if i % ranks == rank]", True),
        ("mine = [i for i in range(64) if i % ranks == (rank + 1) % ranks]", True),
        ("mine = []\nfor i in range(64):\n    if i % ranks == rank:\n        mine.append(i)", True),
        (
            "mine = []\nfor i in range(64):\n    if i % ranks != rank: continue\n    mine += [i]",
            False,
        ),
        ("mine = [i for i in range(64) if i % 2 == 0]", False),
        ("mine = [i for i in range(64) if i != rank]", True),
        ("mine = [i for i in range(64)]", False),
    ],
)
def test_indices_of_a_dataset(tmp_path: Path, filled: str, own: bool) -> None:
    loader = "\nloader = DataLoader(Subset(data, mine), batch_size=4)\n"
    assert decides_by_own_data(tmp_path, filled + loader) is own


def test_modules_of_a_rank_stay_modules(tmp_path: Path) -> None:
    code = "parts = [nn.Linear(4, 4) for _ in range(4)]\n"
    code += "mine = [part for i, part in enumerate(parts) if i % ranks == rank]\n"
    code += "net = nn.Sequential(*mine)\nloader = [(rows,)]\n"
    assert not decides_by_own_data(tmp_path, code)


SAMPLER = """
def turns(numbers, ranks, rank):
    shift = {first}
    return [numbers[i] for i in range(len(numbers)) if i % ranks == shift]

def batches(numbers, ranks, rank):
    return [turns(numbers[i : i + 8], ranks, rank) for i in range(0, 64, 8)]

class Batches(Sampler):
    def __init__(self, ranks, rank):
        self.ranks, self.rank = ranks, rank

    def __iter__(self):
        return iter(batches(list(range(64)), self.ranks, {given}))

loader = DataLoader(data, batch_sampler=Batches(ranks, {rank}))
"""


@pytest.mark.parametrize(
    ("rank", "first", "given", "own"),
    [
        ("rank", "rank", "self.rank", True),
        ("rank", "rank", "rank=self.rank", True),
        ("rank // 1", "(rank - 1) % ranks", "self.rank", True),
        ("rank", "rank", "0", False),
        ("rank", "3", "self.rank", False),
        ("3", "rank", "self.rank", False),
    ],
)
def test_samplers_that_pass_the_rank_on(
    tmp_path: Path, rank: str, first: str, given: str, own: bool
) -> None:
    code = SAMPLER.format(rank=rank, first=first, given=given)
    assert decides_by_own_data(tmp_path, code) is own


@pytest.mark.parametrize(
    ("call", "own"),
    [
        ("scale.to(batch)", True),
        ("scale.expand_as(batch)", True),
        ("scale.share(batch)", False),
    ],
)
def test_methods_of_tensors_do_not_communicate(tmp_path: Path, call: str, own: bool) -> None:
    code = "from scales import make_scale\nscale = make_scale()\nmine = [i for i in range(64) if i % ranks == rank]\n"
    code += "loader = DataLoader(Subset(data, mine), batch_size=4)\n"
    use = USE.replace("    if", f"    {call}\n    if")
    found = findings(program(tmp_path, code + use, header=HEAD), "FSDP501")
    assert [one.rule.code for one in found] == ["FSDP501"] * own
