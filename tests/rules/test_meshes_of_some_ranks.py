"""FSDP152 on meshes: one rank may be left out of a mesh, and shards nothing then."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", ({size},))
if {test}:
    fully_shard(nn.Linear(8, 8), mesh=mesh)
"""


@pytest.mark.parametrize(
    ("size", "test", "wrong"),
    [
        ("ranks", "rank == 0", True),
        ("ranks", "rank != ranks - 1", True),
        ("ranks - 1", "rank != ranks - 1", False),
        ("int(sys.argv[1])", "rank == 0", False),
        ("3", "rank != ranks - 1", False),
    ],
)
def test_a_mesh_of_all_ranks(tmp_path: Path, size: str, test: str, wrong: bool) -> None:
    path = tmp_path / "main.py"
    path.write_text(PROGRAM.format(size=size, test=test))
    rule = rule_by_code("FSDP152")
    assert rule is not None
    assert bool(check(load([path]), [rule()])) is wrong
