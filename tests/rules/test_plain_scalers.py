"""FSDP407: reductions that let the ranks agree on an overflow, and others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import all_rules

RULES = [rule() for rule in all_rules() if rule.code == "FSDP407"]
PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def average(parameters):
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


dist.init_process_group("nccl")
net = nn.ModuleDict({{"table": nn.Linear(8, 8), "head": nn.Linear(8, 8)}})
table = net["table"].cuda()
model = FSDP(net, ignored_modules=[table])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cuda")
overflow = torch.zeros(1, device="cuda")
for batch in [torch.randn(4, 8) for _ in range(3)]:
    loss = model(batch).sum()
    scaler.scale(loss).backward()
    {between}
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


def found(tmp_path: Path, between: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(between=between))
    return [finding.rule.code for finding in check(load([path]), RULES)]


@pytest.mark.parametrize(
    "between",
    [
        "pass",
        "average(table.parameters())",
        "average(list(net['table'].parameters()))",
        "dist.all_reduce(table.weight.grad); dist.all_reduce(table.bias.grad)",
        "dist.all_reduce(loss)",
    ],
)
def test_a_reduction_that_says_nothing_of_the_shards(tmp_path: Path, between: str) -> None:
    assert found(tmp_path, between) == ["FSDP407"]


@pytest.mark.parametrize(
    "between", ["average(model.parameters())", "dist.all_reduce(overflow)", "share(model)"]
)
def test_a_reduction_that_may_tell_of_an_overflow(tmp_path: Path, between: str) -> None:
    head = "def share(model):\n    dist.all_reduce(model.overflow)\n\n\n"
    path = tmp_path / "program.py"
    text = PROGRAM.format(between=between)
    at = text.index("dist.init_process_group")
    path.write_text(text[:at] + head + text[at:])
    assert check(load([path]), RULES) == []
