"""FSDP519: which data differ between ranks that compute together or average nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import argparse
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=2)
args = parser.parse_args()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
width = args.width
mesh = init_device_mesh("cpu", {shape}, mesh_dim_names=("dp", "{other}"))
place, places = mesh["dp"].get_local_rank(), mesh["dp"].size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
{parallel}
fully_shard(model, mesh={mesh})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(64, 8)
rows = TensorDataset(data)
{data}
for step in range(8):
    {batch}
    model(x).sum().backward()
    {reduce}
    optimizer.step()
    optimizer.zero_grad()
"""
USUAL = {
    "shape": "(world // width, width)",
    "other": "tp",
    "parallel": 'parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})',
    "mesh": 'mesh["dp"]',
    "data": "pass",
    "batch": "x = data[rank::world]",
    "reduce": "pass",
}
REPLICAS = {"other": "replicas", "parallel": "pass"}


def found(tmp_path: Path, parts: dict[str, str]) -> list[int]:
    """The lines with findings."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(**{**USUAL, **parts}))
    rule = rule_by_code("FSDP519")
    assert rule is not None
    return [one.site.location().line for one in check(load([path]), [rule()])]


@pytest.mark.parametrize("others", [{}, REPLICAS])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {
            "batch": "g = torch.Generator().manual_seed(step * world + rank)\n"
            "    x = torch.randn(4, 8, generator=g)"
        },
        {
            "data": "rng = np.random.default_rng(7 + rank)",
            "batch": "x = torch.as_tensor(rng.normal(size=(4, 8)))",
        },
        {
            "data": "loader = iter(DataLoader(rows, 4, sampler=DistributedSampler(rows)))",
            "batch": "x = next(loader)[0]",
        },
        {
            "data": "sampler = DistributedSampler(rows, num_replicas=world, rank=rank)\n"
            "loader = iter(DataLoader(rows, 4, sampler=sampler))",
            "batch": "(x,) = next(loader)",
        },
        {
            "data": "sampler = DistributedSampler(rows, mesh.size(), dist.get_rank())\n"
            "loader = iter(DataLoader(rows, 4, sampler=sampler))",
            "batch": "(x,) = next(loader)",
        },
    ],
)
def test_data_of_each_rank(tmp_path: Path, parts: dict[str, str], others: dict[str, str]) -> None:
    assert len(found(tmp_path, {**parts, **others})) == 1


@pytest.mark.parametrize(
    "parts",
    [
        {"batch": "x = data[place::places]"},
        {"batch": "x = data[rank // width :: places]"},
        {"batch": "x = data"},
        {
            "batch": "g = torch.Generator().manual_seed(step * world + rank // width)\n"
            "    x = torch.randn(4, 8, generator=g)"
        },
        {
            "batch": "g = torch.Generator().manual_seed(step * places + place)\n"
            "    x = torch.randn(4, 8, generator=g)"
        },
        {"batch": 'x = data[rank::world]\n    dist.broadcast(x, 0, group=mesh.get_group("tp"))'},
        {"batch": "from files import share\n    x = share(data[rank::world])"},
        {
            "data": "sampler = DistributedSampler(rows, num_replicas=places, rank=place)\n"
            "loader = iter(DataLoader(rows, 4, sampler=sampler))",
            "batch": "x = next(loader)[0]",
        },
        {
            "data": "sampler = DistributedSampler(rows, mesh.size(0), mesh.get_local_rank(0))\n"
            "loader = iter(DataLoader(rows, 4, sampler=sampler))",
            "batch": "x = next(loader)[0]",
        },
        {"shape": "(world, 1)"},
        {
            "parallel": "from torch.distributed.tensor import Replicate, Shard\n"
            "from torch.distributed.tensor.parallel import PrepareModuleInput\n"
            "whole = PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate())\n"
            'parallelize_module(model, mesh["tp"], {"": whole, "0": ColwiseParallel(), '
            '"1": RowwiseParallel()})'
        },
        {**REPLICAS, "mesh": "mesh"},
        {**REPLICAS, "mesh": 'mesh["dp"] if width == 1 else mesh'},
        {**REPLICAS, "other": "cp"},
        {
            **REPLICAS,
            "reduce": 'for p in model.parameters():\n        dist.all_reduce(p.grad, group=mesh.get_group("replicas"))',
        },
        {**REPLICAS, "reduce": "from files import average\n    average(model)"},
    ],
)
def test_programs_that_may_be_right(tmp_path: Path, parts: dict[str, str]) -> None:
    assert found(tmp_path, parts) == []


def test_a_model_that_is_sharded_after_another_one(tmp_path: Path) -> None:
    average = 'import copy\naverage = copy.deepcopy(model)\nfully_shard(average, mesh=mesh["dp"])'
    assert len(found(tmp_path, {**REPLICAS, "parallel": average})) == 1
