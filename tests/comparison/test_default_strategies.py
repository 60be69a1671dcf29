"""The strategy of a setting with a default, which a run may replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

BEFORE = """\
from dataclasses import dataclass

import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


@dataclass
class Settings:
    strategy: ShardingStrategy = ShardingStrategy.DEFAULT


def shard(model, settings):
    return FSDP(model, sharding_strategy=settings.strategy)


dist.init_process_group("nccl")
shard(nn.Linear(4, 4), Settings())
"""
AFTER = """\
from dataclasses import dataclass

import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclass
class Settings:
    strategy: str = "DEFAULT"


def arguments_of(strategy):
    if strategy == "NO_SHARD":
        shape = (dist.get_world_size(), 1)
        mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
        return {"mesh": mesh}
    return {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}


def shard(model, settings):
    return fully_shard(model, **arguments_of(settings.strategy))


dist.init_process_group("nccl")
shard(nn.Linear(4, 4), Settings())
"""
MISTAKES = {
    "a mesh of the wrong strategy": ('strategy == "NO_SHARD"', 'strategy == "FULL_SHARD"'),
    "the opposite test": ('strategy == "NO_SHARD"', 'strategy != "NO_SHARD"'),
}


def differing(folder: Path, default: str, after: str) -> set[str]:
    sides = []
    for name, text in (("before", BEFORE), ("after", after)):
        file = folder / name / "train.py"
        file.parent.mkdir()
        file.write_text(text.replace("DEFAULT", default))
        sides.append(side(file))
    facts = compare_sides(*sides).facts
    return {one.topic for one in facts if one.outcome is Outcome.DIFFERS}


@pytest.mark.parametrize("default", ["FULL_SHARD", "SHARD_GRAD_OP"])
def test_another_strategy_than_the_default_is_no_difference(default: str, tmp_path: Path) -> None:
    assert differing(tmp_path, default, AFTER) == set()


@pytest.mark.parametrize("edit", list(MISTAKES.values()), ids=list(MISTAKES))
@pytest.mark.parametrize("default", ["FULL_SHARD", "SHARD_GRAD_OP"])
def test_arguments_of_another_strategy_differ(
    edit: tuple[str, str], default: str, tmp_path: Path
) -> None:
    assert any(
        topic.startswith("mesh") for topic in differing(tmp_path, default, AFTER.replace(*edit))
    )


def test_the_strategy_of_one_model_is_not_that_of_another(tmp_path: Path) -> None:
    more = "FSDP(nn.Linear(4, 4))\n", "fully_shard(nn.Linear(4, 4))\n"
    sides = []
    for name, text in (("before", BEFORE + more[0]), ("after", AFTER + more[1])):
        file = tmp_path / name / "train.py"
        file.parent.mkdir()
        file.write_text(text.replace("DEFAULT", "FULL_SHARD"))
        sides.append(side(file))
    facts = compare_sides(*sides).facts
    assert not [one for one in facts if one.outcome is Outcome.DIFFERS]
