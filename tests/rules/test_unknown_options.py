"""Calls whose further options come from code that cannot be followed: `f(x, dst=0, **options())`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from elsewhere import options

dist.init_process_group("gloo")
rank = dist.get_rank()
"""

GROUPS = [
    ("dist.gather(x, parts)", "dist.gather(x, dst=0, **options())"),
    ("dist.gather(x, parts, **options())", "dist.gather(x, dst=0)"),
    ("dist.barrier(**options())", "dist.barrier()"),
    ("dist.broadcast(x, src=0)", "dist.broadcast(x, src=0, group=options().group)"),
]


def found(folder: Path, body: str, code: str) -> list[int]:
    (folder / "main.py").write_text(HEAD + body)
    rule = rule_by_code(code)
    assert rule is not None
    return [one.site.location().line for one in check(load([folder / "main.py"]), [rule()])]


@pytest.mark.parametrize(("first", "second"), GROUPS)
def test_a_group_that_is_not_known_may_be_that_of_all_ranks(
    tmp_path: Path, first: str, second: str
) -> None:
    body = f"x, parts = torch.ones(1), None\nif rank == 0:\n    {first}\nelse:\n    {second}\n"
    assert found(tmp_path, body, "FSDP501") == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("dist.gather(x, parts)", "dist.all_gather(x, dst=0, **options())"),
        ("dist.gather(x, parts)", "pass"),
    ],
)
def test_another_collective_is_no_counterpart(tmp_path: Path, first: str, second: str) -> None:
    body = f"x, parts = torch.ones(1), None\nif rank == 0:\n    {first}\nelse:\n    {second}\n"
    assert found(tmp_path, body, "FSDP501") == [12]


def test_the_same_collective_of_another_test_is_no_counterpart(tmp_path: Path) -> None:
    body = """\
x = torch.ones(1)
if rank == 0:
    dist.barrier()
if rank != 0:
    x.add_(1)
if rank != 0 and x.sum() > 2:
    dist.all_reduce(x, **options())
"""
    assert found(tmp_path, body, "FSDP501") == [12]


MODEL = """\
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
"""

MESHES = [
    'init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"), **options())',
    'init_device_mesh("cpu", mesh_shape=(2, 1), **options(), mesh_dim_names=("a", "b"))',
    'init_device_mesh(*("cpu", (2, 1)), **{"mesh_dim_names": ("replicate", "shard"), **options()})',
]


@pytest.mark.parametrize("mesh", MESHES)
def test_further_options_leave_the_given_shape(tmp_path: Path, mesh: str) -> None:
    """Every rank has all parameters, so one rank may compute alone."""
    forward = "if rank == 0:\n    model(torch.ones(1, 8))\n"
    assert found(tmp_path, f"mesh = {mesh}\n{MODEL}{forward}", "FSDP501") == []


def test_replicas_are_known_under_further_options(tmp_path: Path) -> None:
    body = f"torch.manual_seed(rank)\nmesh = {MESHES[0]}\n{MODEL}model(torch.ones(1, 8)).sum().backward()\n"
    assert found(tmp_path, body, "FSDP309") == [10]
    assert found(tmp_path, body, "FSDP308") == []


def test_an_unknown_argument_before_the_shape_hides_it(tmp_path: Path) -> None:
    mesh = "init_device_mesh(*options(), (2, 1))"
    forward = "if rank == 0:\n    model(torch.ones(1, 8))\n"
    assert found(tmp_path, f"mesh = {mesh}\n{MODEL}{forward}", "FSDP501") == [16]
