"""Lists that a loop fills with one element in each turn have as many elements as it makes turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEAD = """\
import sys

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

rows = torch.randn(64, 8)
count = int(sys.argv[1])
model = fully_shard(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
"""
BODY = """\
def split(batch, number):
    parts = []
    for i in range(number):
        {filling}
    return parts


for batch in DataLoader(rows, batch_size=16):
    for i, part in enumerate(split(batch, count)):
        model.set_requires_gradient_sync(i == {last})
        model(part["x"]).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ALWAYS = 'parts.append({"x": batch[i::number]})'
AT_TIMES = 'if batch[i].sum() > 0:\n            parts.append({"x": batch[i::number]})'
TWICE = ALWAYS + "\n        " + ALWAYS


@pytest.mark.parametrize(
    ("filling", "last", "found"),
    [
        (ALWAYS, "count - 1", False),
        (ALWAYS, "count", True),
        (AT_TIMES, "count", False),
        (TWICE, "count", False),
    ],
)
def test_the_last_element(tmp_path: Path, filling: str, last: str, found: bool) -> None:
    text = BODY.format(filling=filling, last=last)
    assert bool(findings(program(tmp_path, text, header=HEAD), "FSDP403")) == found
