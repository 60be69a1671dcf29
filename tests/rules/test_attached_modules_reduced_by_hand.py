"""FSDP113 in programs that reduce some gradients themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.head(self.body(x)) * self.gain


dist.init_process_group("gloo")
model = Model()
fully_shard(model.body)
fully_shard(model)
model.head = nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    model(torch.randn(4, 8)).sum().backward()
    REDUCE
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "reduce, count",
    [
        ("pass", 1),
        ("dist.all_reduce(model.gain.grad)", 1),
        ("dist.all_reduce(model.body.weight.grad)", 1),
        ("dist.all_reduce(model.head.weight.grad)", 0),
        ("for p in model.head.parameters():\n        dist.all_reduce(p.grad)", 0),
        ("for p in model.parameters():\n        dist.all_reduce(p.grad)", 0),
        ("for p in new_parameters:\n        dist.all_reduce(p.grad)", 0),
    ],
)
def test_gradients_of_other_modules(tmp_path: Path, reduce: str, count: int) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("REDUCE", reduce))
    rule = rule_by_code("FSDP113")()
    assert sum(len(list(rule.check(trace))) for trace in load([path]).traces) == count
