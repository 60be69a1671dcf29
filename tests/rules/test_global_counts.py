"""FSDP441: sums over the ranks of numbers of elements that count those of all ranks already."""

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


def mean(value):
    return value / ranks


dist.init_process_group("gloo")
ranks = dist.get_world_size()
net = fully_shard(nn.Linear(8, 8))
number = torch.tensor({count})
dist.all_reduce(number{op})
print({shown})
"""
COUNT = "sum(one.numel() for one in net.parameters())"


@pytest.mark.parametrize(
    ("count", "op", "shown", "found"),
    [
        (COUNT, "", "number", 1),
        (COUNT, "", "number.item()", 1),
        (COUNT, "", "number / 1e9", 1),
        (COUNT, "", "number / ranks", 0),
        (COUNT, "", "mean(number.item())", 0),
        (COUNT, ", op=dist.ReduceOp.MAX", "number", 0),
        (f"{COUNT} // ranks", "", "number", 0),
        ("sum(one.to_local().numel() for one in net.parameters())", "", "number", 0),
    ],
)
def test_counts_that_the_program_reduces(
    tmp_path: Path, count: str, op: str, shown: str, found: int
) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(count=count, op=op, shown=shown))
    rule = rule_by_code("FSDP441")
    assert rule is not None
    assert len(list(check(load([path]), [rule()]))) == found
