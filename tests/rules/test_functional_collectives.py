"""Collectives that return their result: on all ranks, or on some of them (FSDP501)."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEADER = """\
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn import functional as differentiable
from torchtitan.distributed.utils import dist_max, dist_mean, dist_sum

mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "tp"))
flat = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))
rank = dist.get_rank()
model = nn.Linear(8, 8)
fully_shard(model, mesh=flat)
loss = model(torch.ones(2, 8)).sum()
loss.backward()
"""
CALLS = [
    'functional.all_reduce(loss, reduceOp="sum", group=flat)',
    'functional.all_reduce(loss, "sum", (flat, 0))',
    'functional.all_reduce(loss, "sum", flat["dp"])',
    "functional.all_gather_tensor(loss, 0, group=(flat, 0))",
    "functional.broadcast(loss, 0, flat)",
    'functional.all_reduce(loss, "sum", dist.group.WORLD)',
    "differentiable.all_reduce(loss)",
    "differentiable.all_gather(loss, group=None)",
    'dist_mean(loss, flat["dp"])',
    "dist_max(loss, mesh=flat)",
]
OF_A_DIMENSION = [
    'functional.all_reduce(loss, "sum", mesh["dp"])',
    'functional.all_reduce(loss, "sum", (mesh, 0))',
    'functional.all_reduce(loss, "sum", mesh["dp"].get_group())',
    'dist_sum(loss, mesh["dp"])',
]


@pytest.mark.parametrize("call", [*CALLS, *OF_A_DIMENSION])
def test_on_one_rank(tmp_path: Path, call: str) -> None:
    found = program(tmp_path, f"if rank == 0:\n    print({call})\n", header=HEADER)
    assert len(findings(found, "FSDP501")) == 1


@pytest.mark.parametrize("call", [*CALLS, *OF_A_DIMENSION])
def test_on_all_ranks(tmp_path: Path, call: str) -> None:
    found = program(tmp_path, f"value = {call}\nif rank == 0:\n    print(value)\n", header=HEADER)
    assert not findings(found, "FSDP501")


@pytest.mark.parametrize(
    "lines",
    [
        "group = dist.new_group([0])\nif rank == 0:\n    functional.all_reduce(loss, 'sum', group)\n",
        "if rank % 2 == 0:\n    functional.all_reduce(loss, 'sum', mesh['dp'])\n",
        "if rank == 0:\n    print(dist_mean(loss, None))\n",
    ],
)
def test_of_some_ranks(tmp_path: Path, lines: str) -> None:
    assert not findings(program(tmp_path, lines, header=HEADER), "FSDP501")


def test_result_is_the_same_on_all_ranks(tmp_path: Path) -> None:
    lines = """\
total = functional.all_reduce(torch.isnan(loss).float(), reduceOp="max", group=flat)
if total.item() == 0:
    model(torch.ones(2, 8)).sum().backward()
"""
    assert not findings(program(tmp_path, lines, header=HEADER), "FSDP501")
