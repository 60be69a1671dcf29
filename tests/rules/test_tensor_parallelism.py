"""FSDP140 on spellings that the examples do not show."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import all_rules

RULES = [rule() for rule in all_rules() if rule.code == "FSDP140"]
HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import parallel
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def plan():
    return {"up": ColwiseParallel(), "down": RowwiseParallel()}


dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "tp"))
dp, tp = mesh["dp"], mesh["tp"]
model = Net()
"""
TAIL = "model(torch.ones(2, 8)).sum().backward()\n"
TP = """\
for block in model.blocks:
    parallelize_module(block, tp, plan())
"""
BLOCKS = """\
for block in model.blocks:
    fully_shard(block, mesh=dp)
"""
MODEL = "fully_shard(model, mesh=dp)\n"
PATTERN = "parallel.parallelize_module(model, tp, {'blocks.*.up': ColwiseParallel()})\n"
KEYWORDS = (
    "parallelize_module(module=model.head, device_mesh=tp, parallelize_plan=ColwiseParallel())\n"
)
INPUTS = "parallelize_module(model, tp, {'head': parallel.PrepareModuleInput()})\n"


def found(tmp_path: Path, body: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(HEAD + body + TAIL)
    return [finding.message for finding in check(load([path]), RULES)]


@pytest.mark.parametrize(
    "body", [BLOCKS + TP, MODEL + PATTERN, MODEL + KEYWORDS, "fully_shard(model)\n" + TP]
)
def test_a_plan_for_sharded_layers(tmp_path: Path, body: str) -> None:
    (message,) = found(tmp_path, body)
    assert "which `fully_shard` has sharded before" in message


@pytest.mark.parametrize(
    ("mesh", "words"),
    [
        ("mesh=tp", "over `tp`"),
        ("mesh=mesh['dp', 'tp']", "over `tp`"),
        ("mesh=mesh", "over `tp`"),
        ("reshard_after_forward=False", "without a mesh"),
    ],
)
def test_a_mesh_that_does_not_fit(tmp_path: Path, mesh: str, words: str) -> None:
    (message,) = found(tmp_path, TP + BLOCKS.replace("mesh=dp", mesh))
    assert message.startswith("`fully_shard` shards `Linear` ") and words in message


@pytest.mark.parametrize(
    "body",
    [
        TP + BLOCKS + MODEL,
        "fully_shard(model.head, mesh=dp)\n" + TP + MODEL,
        # The root has no parallel layers of its own.
        TP + BLOCKS + "fully_shard(model, mesh=tp)\n",
        # Unknown plans and meshes.
        MODEL + "parallelize_module(model, tp, load_plan())\n",
        TP + "fully_shard(model, mesh=make_mesh())\n",
        TP + "fully_shard(model, **options)\n",
        MODEL + INPUTS,
    ],
)
def test_what_may_fit(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body) == []
