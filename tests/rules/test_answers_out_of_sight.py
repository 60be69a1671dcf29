"""Tests in a training loop whose answer code out of sight gives anew in each turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
from contextlib import nullcontext

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from tools import Tracker, accumulator, should_reduce

net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
{shard}
optimizer = torch.optim.AdamW(model.parameters())
tracker = Tracker(4)
for batch in torch.randn(4, 4, 2, 8):
    for index, part in enumerate(batch.split(1)):
{turn}
    optimizer.step()
    optimizer.zero_grad()
"""
FSDP1 = "model = FSDP(net)"
FSDP2 = "model = fully_shard(net)"
BACKWARD = "        model(part).sum().backward()\n        tracker.advance()"


def found(tmp_path: Path, shard: str, turn: str) -> bool:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(shard=shard, turn=turn))
    rule = rule_by_code("FSDP403")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


ANSWERS = (
    "tracker.is_last()",
    "accumulator.is_last()",
    "should_reduce()",
    "tracker.step() == 3",
    "tracker.order((index, part))[0] == 3",
    "tracker.step == tracker.steps",
    "tracker.step == 3",
    "tracker.is_last",
    "accumulator.step == accumulator.steps",
)


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_context_that_another_object_chooses_is_not_judged(tmp_path: Path, answer: str) -> None:
    turn = (
        f"        with nullcontext() if {answer} else model.no_sync():\n"
        "            model(part).sum().backward()\n"
        "        tracker.advance()"
    )
    assert not found(tmp_path, FSDP1, turn)


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_switch_that_another_object_turns_on_is_not_judged(tmp_path: Path, answer: str) -> None:
    turn = f"        model.set_requires_gradient_sync({answer})\n{BACKWARD}"
    assert not found(tmp_path, FSDP2, turn)
    turn = (
        "        model.set_requires_gradient_sync(False)\n"
        f"        if {answer}:\n"
        f"            model.set_requires_gradient_sync(True)\n{BACKWARD}"
    )
    assert not found(tmp_path, FSDP2, turn)


def test_a_switch_that_is_off_in_all_turns_is_found(tmp_path: Path) -> None:
    turn = f"        model.set_requires_gradient_sync(False)\n{BACKWARD}"
    assert found(tmp_path, FSDP2, turn)
