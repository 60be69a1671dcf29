"""The number of a rank in the group of a mesh dimension, and what a process group has."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEAD = """\
import torch
from rows import read_rows
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
line = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
model = nn.Linear(4, 1)
fully_shard(model)
"""


@pytest.mark.parametrize(
    ("group", "own"),
    [
        ("grid['dp'].get_group()", True),
        ("grid.get_group('dp')", True),
        ("line.get_group()", True),
        ("None", True),
        ("dist.new_group([0, 1])", False),
    ],
)
def test_the_part_of_a_group(tmp_path: Path, group: str, own: bool) -> None:
    code = f"""
group = {group}
box = [read_rows() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(box, src=0)
place, size = dist.get_rank(group), 4
for row in box[0][place * size : (place + 1) * size]:
    if row.sum() > 0:
        model(row)
"""
    found = findings(program(tmp_path, code, header=HEAD), "FSDP501")
    assert [one.rule.code for one in found] == ["FSDP501"] * own


def test_a_group_is_no_mesh(tmp_path: Path) -> None:
    code = """
def group_of(given):
    if hasattr(given, "group"):
        return given.group
    if hasattr(given, "get_group"):
        return given.get_group()
    return given

if dist.get_rank() == 0:
    dist.gather_object(1, [None, None], group=group_of(grid["dp"].get_group()), group_dst=0)
"""
    found = findings(program(tmp_path, code, header=HEAD), "FSDP501")
    assert [one.rule.code for one in found] == ["FSDP501"]
