"""Models that are built with a seed of the rank's own, set by a framework's function."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from accelerate.utils import set_seed
from lightning import seed_everything
from lightning.fabric import Fabric
from torch import nn
from torch.distributed.fsdp import fully_shard

fabric = Fabric(devices=4)
fabric.launch()
SEED
model = fully_shard(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.randn(4, 2, 8):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def found(tmp_path: Path, seed: str) -> list[int]:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.replace("SEED", seed))
    rule = rule_by_code("FSDP308")
    assert rule is not None
    return [one.site.location().line for one in check(load([path]), [rule()])]


@pytest.mark.parametrize(
    "seed",
    [
        "fabric.seed_everything(1 + fabric.global_rank)",
        "fabric.seed_everything(seed=1 + dist.get_rank())",
        "seed_everything(1 + dist.get_rank())",
        "set_seed(1 + dist.get_rank())",
    ],
)
def test_a_seed_of_the_rank_is_found(seed: str, tmp_path: Path) -> None:
    assert found(tmp_path, seed) == [11]


@pytest.mark.parametrize(
    "seed",
    [
        "fabric.seed_everything(1)",
        "fabric.seed_everything()",
        "set_seed(1)",
        "set_seed(1, device_specific=bool(dist.get_world_size()))",
    ],
)
def test_other_seeds_are_not(seed: str, tmp_path: Path) -> None:
    assert found(tmp_path, seed) == []
