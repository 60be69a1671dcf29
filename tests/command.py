"""The command line as the tests call it, and a program with a finding."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from fsdplint.cli.main import main

FIXTURES = Path(__file__).parent.parent / "fixtures" / "fsdp1"
BAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model.forward(torch.randn(2, 4)).sum()  # keep this comment
loss.backward()
optimizer.step()
dist.destroy_process_group()
"""
FIXED = BAD.replace("model.forward(", "model(")


def run(*arguments: object, input: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], input=input)
