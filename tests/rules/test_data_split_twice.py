"""FSDP518: which datasets of a sampler are the rank's part already."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_refused_parameters import found

PROGRAM = """\
import os
from datasets import load_dataset
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

rank, world_size = dist.get_rank(), dist.get_world_size()
rows = torch.randn(64, 4)
data = TensorDataset(rows)
model = nn.Linear(4, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
part = {part}
sampler = {sampler}
loader = DataLoader(part, batch_size=2, sampler=sampler)
for x, in loader:
    model(x).sum().backward()
    optimizer.step()
"""
SAMPLER = "DistributedSampler(part)"


@pytest.mark.parametrize(
    "part",
    [
        "Subset(data, range(rank, len(data), world_size))",
        "Subset(data, list(range(rank, 64, world_size)))",
        "Subset(data, [n for n in range(rank, 64, world_size)])",
        "Subset(data, torch.arange(64)[rank::world_size].tolist())",
        "TensorDataset(rows[rank::world_size])",
        "list(data)[rank::world_size]",
        "load_dataset('rows')['train'].shard(num_shards=world_size, index=rank)",
    ],
)
def test_the_part_of_the_rank(tmp_path: Path, part: str) -> None:
    assert len(found(tmp_path, "FSDP518", PROGRAM.format(part=part, sampler=SAMPLER))) == 1


@pytest.mark.parametrize(
    "sampler",
    [
        "DistributedSampler(part, rank=rank, num_replicas=world_size, shuffle=False)",
        "DistributedSampler(part, None, dist.get_rank())",
    ],
)
def test_a_sampler_over_all_ranks(tmp_path: Path, sampler: str) -> None:
    part = "Subset(data, range(rank, 64, world_size))"
    assert len(found(tmp_path, "FSDP518", PROGRAM.format(part=part, sampler=sampler))) == 1


@pytest.mark.parametrize(
    ("part", "sampler"),
    [
        ("Subset(data, range(0, 64, 2))", SAMPLER),
        ("Subset(data, range(64))", SAMPLER),
        ("Subset(data, range(rank, 64, world_size))", "None"),
        ("Subset(data, range(rank, 64, world_size))", "DistributedSampler(data)"),
        ("Subset(data, range(rank, 64, world_size))", "DistributedSampler(part, 1, 0)"),
        ("Subset(data, range(rank, 64))", SAMPLER),
        (
            "Subset(data, range(int(os.environ['GROUP_RANK']), 64, 4))",
            "DistributedSampler(part, 8, int(os.environ['LOCAL_RANK']))",
        ),
        ("Subset(data, range(int(os.environ['LOCAL_RANK']), 64, 8))", SAMPLER),
        ("TensorDataset(torch.randn(64, 4))", SAMPLER),
        (
            "TensorDataset(torch.randn(64, 4, generator=torch.Generator().manual_seed(rank)))",
            SAMPLER,
        ),
    ],
)
def test_other_data(tmp_path: Path, part: str, sampler: str) -> None:
    assert found(tmp_path, "FSDP518", PROGRAM.format(part=part, sampler=sampler)) == []
