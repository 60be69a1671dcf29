"""The position of a rank in a mesh of one dimension is its number among all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CHECKPOINT = """
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cuda", {shape}{names})
model = fully_shard(nn.Linear(8, 8), mesh={used})
{rank}
if rank == 0:
    torch.save(model.state_dict(), "model.pt")
    dist.barrier()
"""
NAMED = ', mesh_dim_names=("replicate", "shard")'


@pytest.mark.parametrize(
    ("shape", "names", "used", "rank"),
    [
        ("(dist.get_world_size(),)", "", "mesh", "rank = mesh.get_local_rank()"),
        ("(8,)", ', mesh_dim_names=("dp",)', "mesh", "rank = mesh.get_local_rank('dp')"),
        ("(8,)", ', mesh_dim_names=("dp",)', 'mesh["dp"]', "rank = mesh['dp'].get_local_rank()"),
        ("(8,)", "", "mesh", "rank = mesh.get_rank()"),
        ("(2, 4)", NAMED, "mesh", "rank = mesh.get_rank()"),
        ("(2, 4)", NAMED, "mesh", "rank = mesh['shard'].get_rank()"),
    ],
)
def test_one_rank_alone(tmp_path: Path, shape: str, names: str, used: str, rank: str) -> None:
    code = CHECKPOINT.format(shape=shape, names=names, used=used, rank=rank)
    found = findings(program(tmp_path, code), "FSDP501")
    assert found
    assert all("only one rank" in one.message for one in found)


@pytest.mark.parametrize("rank", ["rank = mesh.get_local_rank('shard')", "rank = other.get_rank()"])
def test_a_position_that_several_ranks_have(tmp_path: Path, rank: str) -> None:
    code = CHECKPOINT.format(shape="(2, 4)", names=NAMED, used="mesh", rank=rank)
    found = findings(program(tmp_path, code), "FSDP501")
    assert not any("only one rank" in one.message for one in found)
