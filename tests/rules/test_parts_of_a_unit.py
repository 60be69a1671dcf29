"""States and tensors of parts of a sharded unit, some of which the unit does not shard."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import all_rules

PROGRAM = """\
import copy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8, affine=False)
        self.head = nn.Linear(8, 8)


model = Net()
average = copy.deepcopy(model)
fully_shard(model.body)
SHARD
USE
"""
SHARDS = "fully_shard(model)"
IGNORES = "fully_shard(model, ignored_params=set(model.head.parameters()))"
REPLACES = "fully_shard(model)\nmodel.head = nn.Linear(8, 8)"
SAVE = "if dist.get_rank() == 0:\n    torch.save(model.{0}.state_dict(), 'part.pt')"
LOAD = "model.{0}.load_state_dict(torch.load('part.pt'))"
READ = "model.head.weight.detach().numpy()"
COPY = "average.{0}.load_state_dict(model.{0}.state_dict())"
CODES = {"FSDP301", "FSDP302", "FSDP306", "FSDP307"}


def found(folder: Path, shard: str, use: str) -> set[str]:
    main = folder / "main.py"
    main.write_text(PROGRAM.replace("SHARD", shard).replace("USE", use))
    rules = [rule() for rule in all_rules() if rule.code in CODES]
    return {finding.rule.code for finding in check(load([main]), rules)}


@pytest.mark.parametrize(
    ("use", "code"),
    [
        (SAVE.format("head"), "FSDP301"),
        (LOAD.format("head"), "FSDP302"),
        (READ, "FSDP306"),
        (COPY.format("head"), "FSDP307"),
    ],
)
def test_a_part_that_the_unit_shards(tmp_path: Path, use: str, code: str) -> None:
    assert found(tmp_path, SHARDS, use) == {code}


@pytest.mark.parametrize("use", [SAVE.format("head"), LOAD.format("head"), READ])
@pytest.mark.parametrize("shard", [IGNORES, REPLACES])
def test_a_part_that_the_unit_leaves_whole(tmp_path: Path, shard: str, use: str) -> None:
    assert not found(tmp_path, shard, use)


@pytest.mark.parametrize("use", [SAVE, LOAD, COPY])
def test_a_part_that_has_buffers_alone(tmp_path: Path, use: str) -> None:
    assert not found(tmp_path, SHARDS, use.format("norm"))
