"""FSDP403 where a test chooses between a context that switches the reduction off and another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


@contextmanager
def paused(model):
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
net = fully_shard(nn.Linear(8, 8).cuda())
optimizer = torch.optim.AdamW(net.parameters())
for i in range(10):
    ENTER:
        net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
"""
FORMS = {
    "with paused(net)": True,
    "with paused(net) if i != 4 else paused(net)": True,
    "with paused(net) if i != 4 else nullcontext()": False,
    "with nullcontext() if i == 4 else paused(net)": False,
    "held = nullcontext()\n    if i % 2:\n        held = paused(net)\n    with held": False,
}


@pytest.mark.parametrize("enter", FORMS)
def test_a_context_that_is_sometimes_entered(tmp_path: Path, enter: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.replace("ENTER", enter))
    rule = rule_by_code("FSDP403")()
    found = [one for trace in load([path]).traces for one in rule.check(trace)]
    assert bool(found) is FORMS[enter]
