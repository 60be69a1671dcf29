"""FSDP517: tensors whose size differs between ranks, and the collectives that get them."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_refused_parameters import found

PROGRAM = """\
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

data = TensorDataset(torch.randn(64, 8))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
world_size = dist.get_world_size()
for x, in loader:
    kept = [row for row in x if row.sum() > 3]
    t = {tensor}
    parts = {buffers}
    {call}
"""
BUFFERS = "[torch.empty_like(t) for _ in range(world_size)]"


def messages(
    folder: Path, tensor: str, call: str = "dist.all_gather(parts, t)", buffers: str = BUFFERS
) -> list[str]:
    return found(folder, "FSDP517", PROGRAM.format(tensor=tensor, call=call, buffers=buffers))


SIZES = [
    "torch.zeros(dist.get_rank() + 1)",
    "torch.masked_select(x, x > 0)",
    "x.masked_select(x > 0)",
    "torch.nonzero(x > 0)",
    "x.sum(1).nonzero()",
    "torch.tensor([row.sum() for row in x if row.sum() > 3])",
    "torch.stack([row for row in x if row.sum() > 3])",
    "torch.cat(kept)",
    "torch.tensor([float(row.sum()) for row in kept]).to('cpu')",
]


@pytest.mark.parametrize("tensor", SIZES)
def test_a_size_of_the_rank(tmp_path: Path, tensor: str) -> None:
    assert len(messages(tmp_path, tensor)) == 1
    assert len(messages(tmp_path, tensor, "dist.all_reduce(t)")) == 1


@pytest.mark.parametrize(
    "buffers",
    [
        "[torch.zeros_like(t) for _ in range(world_size)]",
        "[torch.zeros_like(t)] * world_size",
        "[t.clone(), t.clone()]",
    ],
)
def test_buffers_of_that_size(tmp_path: Path, buffers: str) -> None:
    assert len(messages(tmp_path, "torch.masked_select(x, x > 0)", buffers=buffers)) == 1


@pytest.mark.parametrize(
    ("tensor", "buffers"),
    [
        ("torch.masked_select(x, x > 0)", "[torch.empty(n) for n in sizes_of_all_ranks()]"),
        ("torch.masked_select(x, x > 0)[:4]", BUFFERS),
        ("torch.masked_select(x, x > 0).sum()", BUFFERS),
        ("torch.cat([x.masked_select(x > 0), torch.zeros(9)])", BUFFERS),
        ("x.sum(1)", BUFFERS),
        ("torch.stack([row for row in x])", BUFFERS),
        ("torch.stack([row * 2 for row in x])", BUFFERS),
        ("torch.stack(data[dist.get_rank() :: world_size])", BUFFERS),
    ],
)
def test_a_size_that_may_be_the_same(tmp_path: Path, tensor: str, buffers: str) -> None:
    assert messages(tmp_path, tensor, buffers=buffers) == []
