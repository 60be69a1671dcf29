"""FSDP135 where a move leaves out the submodules of a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

dist.init_process_group("cpu:gloo,cuda:nccl")
torch.cuda.set_device(dist.get_rank())
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
for layer in model:
    layer.to_empty(device="cuda", recurse=False)
    layer.reset_parameters()
    fully_shard(layer, offload_policy=CPUOffloadPolicy())
MOVE
fully_shard(model, offload_policy=CPUOffloadPolicy())
model(torch.ones(2, 8)).sum().backward()
"""
MOVES = {
    'model.to_empty(device="cuda", recurse=False)': False,
    'model.to_empty(device="cuda")': True,
    'model[0].to_empty(device="cuda", recurse=False)': True,
}


@pytest.mark.parametrize(("move", "found"), list(MOVES.items()))
def test_moves_of_own_parameters(move: str, found: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.replace("MOVE", move), encoding="utf-8")
    rule = rule_by_code("FSDP135")()
    findings = [one for trace in load([path]).traces for one in rule.check(trace)]
    assert bool(findings) is found
