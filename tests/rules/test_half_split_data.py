"""FSDP511: data of the program's own that a position in one of two dimensions chooses."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CODE = """
import random
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, IterableDataset

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "{name}"))
part = mesh["{name}"]
{data}
torch.manual_seed(0)
model = nn.Linear(4, 4)
fully_shard(model, mesh={mesh})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in batches:
    model({x}).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
STREAM = """
class Stream(IterableDataset):
    def __init__(self, reader, readers):
        self.reader, self.readers = reader, readers

    def __iter__(self):
        for index in range(self.reader, 100, self.readers):
            yield row(index)
"""
POSITION = "part.get_local_rank(), part.size()"
RANK = "dist.get_rank(), dist.get_world_size()"
BAD = {
    "dataset": (f"{STREAM}batches = DataLoader(Stream({POSITION}))", "x"),
    "slice": ("batches = read()[part.get_local_rank() :: part.size()]", "x"),
    "generator": (
        "g = torch.Generator().manual_seed(3 + part.get_local_rank())\nbatches = range(9)",
        "torch.randn(4, 4, generator=g)",
    ),
    "numbers": (
        "numbers = random.Random(mesh.get_local_rank('{name}') * 7)\nbatches = range(9)",
        "torch.tensor([numbers.random() for _ in range(4)])",
    ),
}
GOOD = {
    "dataset of the rank": (f"{STREAM}batches = DataLoader(Stream({RANK}))", "x"),
    "slice of the rank": ("batches = read()[dist.get_rank() :: dist.get_world_size()]", "x"),
    "both positions": (
        "place = mesh['replicate'].get_local_rank() * part.size() + part.get_local_rank()\n"
        "batches = read()[place :: 4]",
        "x",
    ),
    "message": ("print(part.get_local_rank())\nbatches = read()", "x"),
}


def _found(tmp_path: Path, data: str, x: str, mesh: str = "mesh", name: str = "shard") -> bool:
    code = CODE.format(data=data.replace("{name}", name), x=x, mesh=mesh, name=name)
    return bool(findings(program(tmp_path, code), "FSDP511"))


@pytest.mark.parametrize("case", BAD)
def test_data_of_one_dimension_are_found(tmp_path: Path, case: str) -> None:
    assert _found(tmp_path, *BAD[case])


@pytest.mark.parametrize("case", GOOD)
def test_other_data_are_fine(tmp_path: Path, case: str) -> None:
    assert not _found(tmp_path, *GOOD[case])


@pytest.mark.parametrize("case", BAD)
def test_the_ranks_of_another_parallelism_get_the_same_data(tmp_path: Path, case: str) -> None:
    assert not _found(tmp_path, *BAD[case], mesh="part")
    assert not _found(tmp_path, *BAD[case], name="tp")
