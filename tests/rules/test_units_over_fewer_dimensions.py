"""FSDP519 on units that `fully_shard` shards over fewer dimensions than the rest of the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicas", "shard"))
model = Net()
{before}
for block in model.blocks:
    fully_shard(block, mesh={blocks})
fully_shard(model, mesh={root})
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
data = TensorDataset(torch.ones(64, 4))
sampler = DistributedSampler({sampled})
for (batch,) in DataLoader(data, batch_size=4, sampler=sampler):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
BY_SHARD = 'data, mesh["shard"].size(), mesh["shard"].get_local_rank()'


def count(folder: Path, blocks: str, root: str, before: str = "", sampled: str = "data") -> int:
    file = folder / "train.py"
    file.write_text(PROGRAM.format(blocks=blocks, root=root, before=before, sampled=sampled))
    rule = rule_by_code("FSDP519")
    assert rule is not None
    return len(check(load([file]), [rule()]))


@pytest.mark.parametrize(("blocks", "root"), [('mesh["shard"]', "mesh"), ("mesh", 'mesh["shard"]')])
def test_one_unit_leaves_the_replicas_out(tmp_path: Path, blocks: str, root: str) -> None:
    assert count(tmp_path, blocks, root) == 1


def test_all_units_have_the_whole_mesh(tmp_path: Path) -> None:
    assert count(tmp_path, "mesh", "mesh") == 0


def test_the_unit_is_frozen(tmp_path: Path) -> None:
    before = "model.blocks.requires_grad_(False)"
    assert count(tmp_path, 'mesh["shard"]', "mesh", before) == 0


def test_the_replicas_have_the_same_data(tmp_path: Path) -> None:
    assert count(tmp_path, 'mesh["shard"]', "mesh", sampled=BY_SHARD) == 0
