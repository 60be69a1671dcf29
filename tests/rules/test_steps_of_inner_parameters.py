"""FSDP414 where the optimizer was built over a part of what is sharded."""

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
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

dist.init_process_group("gloo")
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
{build}
for x in batches():
    model(x).mean().backward()
    if dist.get_rank() == 0:
        optimizer.step()
    optimizer.zero_grad()
"""
ADAM = "optimizer = torch.optim.AdamW({}.parameters())"


def found(folder: Path, *build: str) -> bool:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(build="\n".join(build)))
    rule = rule_by_code("FSDP414")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "build",
    [
        (ADAM.format("net"), "model = FSDP(net, use_orig_params=True)"),
        ("model = FSDP(net)", ADAM.format("net")),
        ("model = fully_shard(net)", ADAM.format("net[1]")),
        ("model = fully_shard(net)", ADAM.format("model")),
    ],
)
def test_a_step_on_one_rank(tmp_path: Path, build: tuple[str, str]) -> None:
    assert found(tmp_path, *build)


@pytest.mark.parametrize(
    "build",
    [
        (ADAM.format("net"), "model = FSDP(net)"),
        (ADAM.format("net[1]"), "model = fully_shard(net)"),
        ("model = FSDP(net, ignored_modules=[net[1]])", ADAM.format("net[1]")),
        ("model = nn.parallel.DistributedDataParallel(net)", ADAM.format("net")),
    ],
)
def test_an_optimizer_of_other_parameters(tmp_path: Path, build: tuple[str, str]) -> None:
    assert not found(tmp_path, *build)
