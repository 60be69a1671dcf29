"""Schedulers that functions of libraries make."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
IMPORT

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
scheduler = SCHEDULER
fully_shard(model)
optimizer = OPTIMIZER
for x in torch.randn(4, 2, 8):
    model(x).sum().backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
"""
NEW = "torch.optim.AdamW(model.parameters())"
MADE = [
    ("from diffusers.optimization import get_scheduler", "get_scheduler('cosine', optimizer)"),
    (
        "from diffusers.optimization import get_scheduler",
        "get_scheduler('constant', optimizer=optimizer, num_warmup_steps=10)",
    ),
    (
        "from diffusers.optimization import get_piecewise_constant_schedule as piecewise",
        "piecewise(optimizer, '1:10,0.1')",
    ),
    ("import diffusers", "diffusers.optimization.get_constant_schedule(optimizer)"),
    ("from transformers import get_scheduler", "get_scheduler('linear', optimizer, 1, 10)"),
]


@pytest.mark.parametrize(("imported", "scheduler"), MADE)
def test_the_optimizer_of_a_scheduler(imported: str, scheduler: str, tmp_path: Path) -> None:
    rule = rule_by_code("FSDP136")
    assert rule is not None
    main = tmp_path / "main.py"
    text = PROGRAM.replace("IMPORT", imported).replace("SCHEDULER", scheduler)
    for optimizer, number in ((NEW, 1), ("optimizer", 0)):
        main.write_text(text.replace("OPTIMIZER", optimizer))
        assert len(check(load([main]), [rule()])) == number
