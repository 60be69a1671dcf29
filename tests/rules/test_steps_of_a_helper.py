"""FSDP431: a helper steps for several places, of which each runs once."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEADER = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    optimizer.step()


"""
ONCE_EACH = """\
model(torch.ones(2, 8)).sum().backward()
step()
model(torch.ones(2, 8)).sum().backward()
step()
"""
AGAIN = """\
for _ in range(4):
    model(torch.ones(2, 8)).sum().backward()
    step()
"""


@pytest.mark.parametrize(("lines", "number"), [(ONCE_EACH, 0), (AGAIN, 1)])
def test_steps(tmp_path: Path, lines: str, number: int) -> None:
    assert len(findings(program(tmp_path, lines, header=HEADER), "FSDP431")) == number
