"""FSDP403: a counter that the step sets back decides which micro-batch synchronises."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

FSDP1 = """\
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = FSDP(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
counter = 0
for _ in range(4):
    if counter < 1:
        with model.no_sync():
            model(torch.randn(2, 8)).sum().backward()
    else:
        model(torch.randn(2, 8)).sum().backward()
    counter += 1
    if counter == 2:
        optimizer.step()
        optimizer.zero_grad()
        counter = 0
"""
FSDP2 = """\
import torch
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
counter = 0
for _ in range(4):
    if counter < 1:
        model.set_requires_gradient_sync(False)
    else:
        model.set_requires_gradient_sync({last})
    model(torch.randn(2, 8)).sum().backward()
    counter += 1
    if counter == 2:
        optimizer.step()
        optimizer.zero_grad()
        counter = 0
"""


@pytest.mark.parametrize(
    ("text", "places"),
    [(FSDP1, 0), (FSDP2.format(last=True), 0), (FSDP2.format(last=False), 2)],
)
def test_counters(tmp_path: Path, text: str, places: int) -> None:
    assert len(findings(program(tmp_path, text, header=""), "FSDP403")) == places
