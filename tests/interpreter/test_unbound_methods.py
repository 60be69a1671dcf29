"""Methods that a call names by their class: `nn.Module.zero_grad(model)`."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

LOOP = """
model = fully_shard(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for batch in torch.randn(3, 2, 4):
    scaler.scale(model(batch).sum()).backward()
    scaler.step(optimizer)
    {first}
    {second}
"""
UPDATE, ZERO = "torch.amp.GradScaler.update(scaler)", "nn.Module.zero_grad(model)"


EPOCHS = """
from functools import partial
from torch.utils.data import DataLoader, DistributedSampler

model = fully_shard(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(16, 4)
sampler = DistributedSampler(data)
start = partial(DistributedSampler.set_epoch, sampler)
for epoch in range(3):
    {start}
    for batch in DataLoader(data, sampler=sampler):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("start(epoch)", False),
        ("DistributedSampler.set_epoch(sampler, epoch)", False),
        ("print(DistributedSampler.set_epoch, epoch)", True),
    ],
)
def test_an_epoch_that_a_method_named_by_its_class_sets(
    tmp_path: Path, start: str, found: bool
) -> None:
    assert bool(findings(program(tmp_path, EPOCHS.format(start=start)), "FSDP512")) == found


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [(UPDATE, ZERO, set()), (UPDATE, "pass", {"FSDP431"}), ("pass", ZERO, {"FSDP421"})],
)
def test_a_method_named_by_its_class(
    tmp_path: Path, first: str, second: str, found: set[str]
) -> None:
    result = program(tmp_path, LOOP.format(first=first, second=second))
    assert {code for code in ("FSDP421", "FSDP431") if findings(result, code)} == found
