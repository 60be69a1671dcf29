"""FSDP143 on FSDP1: which changes of parameters the next forward does not see."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy, StateDictType,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy


class Block(nn.Linear):
    pass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = Block(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.block(x))


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Block(8, 8), Block(8, 8))

    def forward(self, x):
        return self.layers(x)


x = torch.randn(2, 8)
"""
WRAPPED = "model = FSDP(Net())"
HALVED = "with torch.no_grad():\n    for p in model.parameters():\n        p.mul_(0.5)\n"
FORWARD = "with torch.no_grad():\n    model(x)\n"


def found(tmp_path: Path, body: str) -> bool:
    path = tmp_path / "program.py"
    path.write_text(HEAD + body)
    rule = rule_by_code("FSDP143")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "body",
    [
        f"{WRAPPED}\n{FORWARD}{HALVED}{FORWARD}",
        f"{WRAPPED}\nmodel.eval()\n@torch.inference_mode()\ndef use():\n    return model(x)\n"
        f"use()\n{HALVED}use()\n",
        f"model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({{Block}}))\n"
        f"{FORWARD}{HALVED}{FORWARD}",
        f"model = FSDP(Net(), mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))\n"
        f"{FORWARD}{HALVED}{FORWARD}",
        f"model = FSDP(Net(), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)\n"
        f"{FORWARD}{HALVED}{FORWARD}",
        f"{WRAPPED}\n{FORWARD}for p in model.parameters():\n    p.data.zero_()\n{FORWARD}",
        f"{WRAPPED}\n{FORWARD}torch._foreach_mul_(list(model.parameters()), 0.5)\n{FORWARD}",
        f"{WRAPPED}\n{FORWARD}{HALVED}model(x).sum().backward()\n",
        f"{WRAPPED}\nfor step in range(9):\n    with torch.no_grad():\n        model(x)\n"
        "        for p in model.parameters():\n            p.mul_(0.5)\n",
        f"{WRAPPED}\nmodel.requires_grad_(False)\nother = FSDP(Net())\nfor step in range(9):\n"
        "    with torch.no_grad():\n        y = model(x)\n    (other(x) - y).sum().backward()\n"
        "    for p, o in zip(model.parameters(), other.parameters()):\n        p.data.lerp_(o, 0.1)\n",
    ],
)
def test_a_change_that_the_next_forward_does_not_see(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        f"{WRAPPED}\n{HALVED}{FORWARD}",
        f"{WRAPPED}\n{FORWARD}{HALVED}",
        f"{WRAPPED}\nmodel(x).sum().backward()\n{HALVED}{FORWARD}",
        f"{WRAPPED}\n{FORWARD}model(x).sum().backward()\n{HALVED}{FORWARD}",
        f"{WRAPPED}\n{FORWARD}with FSDP.summon_full_params(model):\n    for p in model.parameters():\n"
        f"        p.data.mul_(0.5)\n{FORWARD}",
        f"{WRAPPED}\n{FORWARD}{HALVED}with FSDP.summon_full_params(model):\n    pass\n{FORWARD}",
        f"{WRAPPED}\n{FORWARD}model.load_state_dict(torch.load('weights.pt'))\n{FORWARD}",
        f"model = FSDP(Blocks(), auto_wrap_policy=ModuleWrapPolicy({{Block}}))\n"
        f"{FORWARD}{HALVED}{FORWARD}",
        f"model = FSDP(Net(), auto_wrap_policy=size_based_auto_wrap_policy)\n"
        f"{FORWARD}{HALVED}{FORWARD}",
        f"model = FSDP(Net(), sharding_strategy=ShardingStrategy.NO_SHARD)\n"
        f"{FORWARD}{HALVED}{FORWARD}",
        f"model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({{Block}}))\n"
        f"{FORWARD}with torch.no_grad():\n    model.block.weight.mul_(0.5)\n{FORWARD}",
        f"{WRAPPED}\n{FORWARD}for p in list(model.parameters()):\n    q = p.detach().clone().mul_(0.5)\n"
        f"{FORWARD}",
        f"model = Net()\n{FORWARD}{HALVED}{FORWARD}",
        f"{WRAPPED}\nif x.sum() > 0:\n    model(x)\n{HALVED}{FORWARD}",
    ],
)
def test_other_changes(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)
