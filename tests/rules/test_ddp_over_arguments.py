"""FSDP115 on sharded models that come as arguments, or that code out of sight has, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from elsewhere import summarize

net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
"""


def found(tmp_path: Path, body: str) -> bool:
    path = tmp_path / "program.py"
    path.write_text(HEAD + body)
    rule = rule_by_code("FSDP115")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


SHARDED = {
    "argument": """
def distribute(model: nn.Module) -> nn.Module:
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return DDP(model)
""",
    "method of a trainer": """
class Trainer:
    def __init__(self, model):
        self.model = model

    def set_up(self):
        fully_shard(self.model)
        self.model = DDP(self.model)
""",
    "seen elsewhere": """
fully_shard(net)
summarize(net)
net = DDP(net)
""",
    "seen elsewhere before": """
summarize(net)
fully_shard(net)
net = DDP(net)
""",
}
UNKNOWN = {
    "a part, and DDP may ignore it": """
fully_shard(net[0])
summarize(net)
net = DDP(net)
""",
    "a part of an argument": """
def distribute(model: nn.Module) -> nn.Module:
    fully_shard(model.encoder)
    return DDP(model)
""",
    "another model": """
def distribute(model: nn.Module, critic: nn.Module) -> nn.Module:
    fully_shard(model)
    return DDP(critic)
""",
}


@pytest.mark.parametrize("body", SHARDED.values(), ids=SHARDED)
def test_ddp_over_a_sharded_model_is_found(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)


@pytest.mark.parametrize("body", UNKNOWN.values(), ids=UNKNOWN)
def test_ddp_that_may_ignore_what_is_sharded_is_silent(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)
