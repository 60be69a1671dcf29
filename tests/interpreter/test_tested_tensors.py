"""Tests of numbers that a program computes from the data of each rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import BackwardRun, OptimizerStepped

LOOP = """\
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
model = Net()
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data, {given})
for batch in DataLoader(data, sampler=sampler):
    inputs, targets = {parts}
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    if loss.item() < 10:
        optimizer.step()
"""


def _own_data(folder: Path, **texts: str) -> list[bool]:
    found = program(folder, LOOP.format(**texts))
    steps = list(events(found, OptimizerStepped))
    assert len(steps) >= 2
    return [any(guard.own_data for guard in step.guards) for step in steps]


@pytest.mark.parametrize("parts", ["batch", "[one.to('cpu') for one in batch]"])
def test_batches_in_a_list(tmp_path: Path, parts: str) -> None:
    assert all(_own_data(tmp_path, given="num_replicas=2", parts=parts))


def test_one_replica_has_all_samples(tmp_path: Path) -> None:
    assert not any(_own_data(tmp_path, given="num_replicas=1, rank=0", parts="batch"))


def test_a_test_of_a_loss_is_no_setting(tmp_path: Path) -> None:
    body = """\
    model = Net()
    fully_shard(model)
    best = 3
    for batch in batches:
        loss = model(batch).sum()
        if loss.item() < best:
            loss.backward()
    """
    found = program(tmp_path, body)
    assert len(found.traces) == 1 and any(events(found, BackwardRun))
