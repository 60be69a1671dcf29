"""FSDP418 is silent where a backward pass may run out of sight."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from library import Engine, run
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
one, other = nn.Linear(8, 8), nn.Linear(8, 8)
fully_shard(one)
fully_shard(other)
first = torch.optim.Adam(one.parameters())
second = torch.optim.Adam(other.parameters())
for x in torch.randn(4, 2, 8):
    other(one(x)).sum().backward()
    second.step()
    first.zero_grad()
    losses = {"sum": other(one(x)).sum()}
    loss = losses["sum"]
    BETWEEN
    first.step()
    second.zero_grad()
"""
SILENT = [
    "run(loss)",
    "run(lambda: loss)",
    "Engine(one).backward(loss)",
    "sum(losses.values()).backward()",
    "torch.autograd.backward(loss)",
    "torch.autograd.backward([loss])",
    "first.load_gradients(loss)",
    "one.weight.grad = torch.ones(8, 8)",
]


def found(folder: Path, between: str) -> int:
    main = folder / "main.py"
    main.write_text(PROGRAM.replace("BETWEEN", between))
    rule = rule_by_code("FSDP418")
    assert rule is not None
    return len(check(load([main]), [rule()]))


@pytest.mark.parametrize("between", SILENT)
def test_what_may_make_gradients(between: str, tmp_path: Path) -> None:
    assert not found(tmp_path, between)


@pytest.mark.parametrize("between", ["pass", "print(loss)"])
def test_what_makes_none(between: str, tmp_path: Path) -> None:
    assert found(tmp_path, between) == 1
