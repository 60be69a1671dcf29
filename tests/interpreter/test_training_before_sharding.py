"""FSDP511: what a program trains before it shards a model is not trained by several ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.zeros(16, dtype=torch.long))


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        model(x).sum().backward()
        optimizer.step()


def worker(rank):
    dist.init_process_group("nccl", rank=rank, world_size=2)
    model = Net()
    fully_shard(model)
    loader = DataLoader(data, batch_size=2)
    {after}


loader = DataLoader(data, batch_size=2)
{before}
mp.spawn(worker, nprocs=2)
"""


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("train(Net(), loader)", "pass", False),
        ("pass", "train(model, loader)", True),
    ],
)
def test_only_passes_after_sharding_are_reported(
    tmp_path: Path, before: str, after: str, found: bool
) -> None:
    text = PROGRAM.format(before=before, after=after)
    codes = [one.rule.code for one in findings(program(tmp_path, text), "FSDP511")]
    assert codes == ["FSDP511"] * found
