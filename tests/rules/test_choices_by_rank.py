"""FSDP501 and FSDP414: data that a test of the rank chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from elsewhere import adjust

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = fully_shard(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(rank)
for step in range(3):
    batch = torch.randn(2, 4, generator=generator)
    {choose}
    if {test}:
        continue
    model(batch).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LARGER = "if rank == 1: batch = batch * 30"
DRAWN = """\
if rank == 0:
        number = torch.randint(0, 9, (1,), generator=generator)
    else:
        number = torch.empty(1, dtype=torch.long)"""


def found(tmp_path: Path, choose: str, test: str) -> set[str]:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(choose=choose, test=test))
    rules = [rule_by_code(code)() for code in ("FSDP414", "FSDP501")]
    return {finding.rule.code for finding in check(load([path]), rules)}


@pytest.mark.parametrize(
    ("choose", "test"),
    [
        (LARGER, "batch.mean() > 1"),
        ("batch = batch * 30 if rank == 1 else batch", "(batch > 0).all()"),
        ("if rank == 0 and step == 1: batch = torch.full_like(batch, -1)", "(batch == -1).all()"),
        (DRAWN, "number.item() > 3"),
    ],
)
def test_the_ranks_have_other_data(choose: str, test: str, tmp_path: Path) -> None:
    assert found(tmp_path, choose, test) == {"FSDP501"}


@pytest.mark.parametrize(
    ("choose", "test"),
    [
        (f"{DRAWN}\n    dist.broadcast(number, src=0)", "number.item() > 3"),
        (f"{DRAWN}\n    adjust(number)", "number.item() > 3"),
        (f"{DRAWN}\n    number = adjust(number)", "number.item() > 3"),
        (f"{LARGER}\n    dist.all_reduce(batch)", "batch.mean() > 1"),
        (LARGER, "batch.shape[0] > 9"),
        ("size = 2 if rank == 0 else 2", "size > 3"),
    ],
)
def test_the_ranks_have_the_same_number(choose: str, test: str, tmp_path: Path) -> None:
    assert found(tmp_path, choose, test) == set()
