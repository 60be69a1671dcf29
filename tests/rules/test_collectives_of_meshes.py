"""FSDP501 on collectives over the group of a mesh, or of a part of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchtitan.distributed.utils import dist_mean
from torchtitan.distributed import utils as dist_utils

dist.init_process_group("gloo")
rank = dist.get_rank()
line = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
grid = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("pp", "dp"))
model = nn.Linear(4, 4)
fully_shard(model, mesh=line)
optimizer = torch.optim.AdamW(model.parameters())


def average(x, mesh):
    return funcol.all_reduce(x, reduceOp="avg", group=mesh).item()


for step in range(10):
    loss = model(torch.randn(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    found = loss.detach()
{body}
"""
REDUCTIONS = [
    'dist.all_reduce(found, group=line.get_group())',
    'dist.all_reduce(found, group=line["dp"].get_group())',
    'dist.all_reduce(found, group=line.get_group("dp"))',
    'dist.all_reduce(found, group=grid["dp"].get_group())',
    'dist.all_reduce(found, group=grid.get_group("dp"))',
    'funcol.all_reduce(found, "sum", line)',
    'funcol.all_reduce(found, "sum", grid["dp"])',
    'found = funcol.all_gather_tensor(found, 0, group=line.get_group())',
    "average(found, line)",
    'average(found, grid["dp"])',
    "dist_mean(found, line)",
    'dist_mean(found, grid["dp"])',
    "dist_utils.dist_max(found, line)",
]  # fmt: skip


def found(tmp_path: Path, *lines: str) -> int:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(body="\n".join(f"    {line}" for line in lines)))
    rule = rule_by_code("FSDP501")
    assert rule is not None
    return len(check(load([path]), [rule()]))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_one_rank_alone_reaches_it(tmp_path: Path, reduction: str) -> None:
    assert found(tmp_path, "if rank == 0:", f"    {reduction}") == 1
    assert found(tmp_path, "if rank != 0:", "    continue", reduction) == 1


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_all_ranks_reach_it(tmp_path: Path, reduction: str) -> None:
    assert found(tmp_path, reduction, "if rank == 0:", "    print(found)") == 0


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_other_ranks_run_the_same(tmp_path: Path, reduction: str) -> None:
    body = ("if rank == 0:", f"    {reduction}", "else:", f"    {reduction}")
    assert found(tmp_path, *body) == 0


OF_ONE_PART = [
    'if grid["pp"].get_local_rank() == 0:',
    'if dist.get_rank(grid["pp"].get_group()) == 0:',
    'if grid.get_local_rank("pp") == 0:',
    "if grid.get_coordinate()[0] == 0:",
    "if grid.get_coordinate() is not None:",
    "if line.get_coordinate() is not None:",
    "if dist.get_world_size() > 1:",
]


@pytest.mark.parametrize("test", OF_ONE_PART)
def test_the_ranks_of_a_group_reach_it(tmp_path: Path, test: str) -> None:
    for reduction in ('dist.all_reduce(found, group=grid["dp"].get_group())',
                      'dist_mean(found, grid["dp"])', 'funcol.all_reduce(found, "sum", grid["dp"])'):  # fmt: skip
        assert found(tmp_path, test, f"    {reduction}") == 0


def test_a_group_of_the_rank_alone(tmp_path: Path) -> None:
    body = ("if rank == 0:", "    dist.all_reduce(found, group=alone)")
    assert found(tmp_path, "alone = dist.new_group([0])", *body) == 0
