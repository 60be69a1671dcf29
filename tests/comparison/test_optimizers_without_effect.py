"""Optimizers that are built before the model is sharded."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

HEAD = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

dist.init_process_group("nccl")
model = nn.Linear(4, 4)
"""
BUILD = "optimizer = torch.optim.AdamW(model.parameters())\n"
USE = "model(torch.ones(2, 4)).sum().backward()\noptimizer.step()\n"


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        (BUILD + "model = FSDP(model)\n", "fully_shard(model)\n" + BUILD, False),
        (BUILD + "model = FSDP(model)\n", BUILD + "fully_shard(model)\n", False),
        ("model = FSDP(model)\n" + BUILD, BUILD + "fully_shard(model)\n", True),
        (BUILD + "fully_shard(model)\n", "fully_shard(model)\n" + BUILD, True),
    ],
    ids=["mended", "kept", "broken", "of FSDP2"],
)
def test_an_optimizer_without_effect_may_get_one(
    before: str, after: str, differs: bool, tmp_path: Path
) -> None:
    sides = []
    for name, text in (("before", before), ("after", after)):
        file = tmp_path / name / "train.py"
        file.parent.mkdir()
        file.write_text(HEAD + text + USE)
        sides.append(side(file))
    facts = compare_sides(*sides).facts
    found = {one.topic for one in facts if one.outcome is Outcome.DIFFERS}
    assert ("optimizer is built" in found) is differs
