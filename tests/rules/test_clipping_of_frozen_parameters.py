"""FSDP508 where the parameters on the CPU have no gradients to clip."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

dist.init_process_group("nccl")
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
FREEZE
fully_shard(model, offload_policy=CPUOffloadPolicy())
model(torch.randn(2, 4)).sum().backward()
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""


@pytest.mark.parametrize(
    "freeze, count",
    [
        ("", 1),
        ("model[0].requires_grad_(False)", 1),
        ("model.requires_grad_(False)", 0),
        (
            "model.requires_grad_(False)\n"
            "for part in (model[0], model[2]):\n"
            "    fully_shard(part, offload_policy=CPUOffloadPolicy())",
            0,
        ),
    ],
)
def test_frozen_parameters(tmp_path: Path, freeze: str, count: int) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("FREEZE", freeze))
    rule = rule_by_code("FSDP508")()
    assert sum(len(list(rule.check(trace))) for trace in load([path]).traces) == count
