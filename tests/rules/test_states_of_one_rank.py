"""FSDP310 on the state of a plain model that one rank takes before the model is sharded."""

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
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
{take}
for layer in model:
    fully_shard(layer)
fully_shard(model)
options = StateDictOptions(full_state_dict=True, {option})
set_model_state_dict(model, state, options=options)
"""


def not_broadcast(tmp_path: Path, take: str, option: str) -> int:
    """The number of findings."""
    file = tmp_path / "main.py"
    file.write_text(PROGRAM.format(take=take, option=option))
    rule = rule_by_code("FSDP310")
    assert rule is not None
    return len(check(load([file]), [rule()]))


TAKEN = [
    "state = {}\nif rank == 0:\n    state = model.state_dict()",
    "state = None\nif not rank:\n    state = model.state_dict()",
    "state = model.state_dict() if rank == 0 else {}",
    "def take():\n    if rank != 0:\n        return {}\n    return model.state_dict()\nstate = take()",
]


@pytest.mark.parametrize("take", TAKEN)
def test_a_state_of_one_rank(tmp_path: Path, take: str) -> None:
    assert not_broadcast(tmp_path, take, "strict=False") == 1


@pytest.mark.parametrize("take", TAKEN)
def test_a_state_that_is_broadcast(tmp_path: Path, take: str) -> None:
    assert not_broadcast(tmp_path, take, "broadcast_from_rank0=True") == 0


def test_a_state_of_all_ranks(tmp_path: Path) -> None:
    assert not_broadcast(tmp_path, "state = model.state_dict()", "strict=False") == 0
