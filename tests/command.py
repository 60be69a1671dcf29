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
LINE = "loss = model.forward(torch.randn(2, 4)).sum()  # keep this comment\n"
TWICE = BAD.replace(LINE, LINE + "again = model.forward(torch.randn(2, 4))\n")
# What has no fix: the model is copied after it was sharded.
COPY = BAD.replace("fully_shard(model)\n", "fully_shard(model)\nother = copy.deepcopy(model)\n")
COPY = "import copy\n" + COPY.replace("model.forward(", "model(")
BOTH = "import copy\n" + BAD.replace(
    "fully_shard(model)\n", "fully_shard(model)\nother = copy.deepcopy(model)\n"
)


def run(*arguments: object, input: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], input=input)


def concise(*arguments: object) -> list[str]:
    """The findings of a check: file, line and code."""
    lines = run(*arguments, "--output-format", "concise").output.splitlines()
    return [":".join([*line.split(":")[:2], line.split()[1]]) for line in lines if ": FSDP" in line]
