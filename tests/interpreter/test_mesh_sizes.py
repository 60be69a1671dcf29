"""The names and sizes of a mesh are the same wherever a program reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """
import math
from settings import load
from torch.distributed.device_mesh import init_device_mesh

config = load()


def kind_of(device_mesh):
{tests}
    return "whole"


def save(device_mesh, optimizer):
    if kind_of(device_mesh) == "whole":
        if dist.get_rank() == 0:
            torch.save(optimizer.state_dict(), "optimizer.pt")
        return
    torch.distributed.checkpoint.save({{"optimizer": optimizer.state_dict()}})


mesh = init_device_mesh("cuda", {shape}{names})
model = Net()
if {sharding}:
    fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
save(mesh, optimizer)
"""
TWO = "(config.replicate, config.shard)"
NAMES = ', mesh_dim_names=("replicate", "shard")'
NAMED = "    if {}:\n        return 'parts'"
SHARDING = {
    "part": 'mesh["shard"].size() > 1',
    "number": "mesh.size(1) > 1",
    "last": "mesh.size(-1) > 1",
    "shape": "mesh.shape[1] > 1",
    "product": 'math.prod(int(mesh[name].size()) for name in ("shard",)) > 1',
}
TESTS = {
    "name": '"shard" in device_mesh.mesh_dim_names and device_mesh["shard"].size() > 1',
    "names or none": '"shard" in (device_mesh.mesh_dim_names or ()) and device_mesh.size(1) > 1',
    "getattr": '"shard" in tuple(getattr(device_mesh, "mesh_dim_names", ()) or ())'
    ' and device_mesh["shard"].size() > 1',
    "dimensions": "device_mesh.ndim > 1 and device_mesh.shape[1] > 1",
    "any": "any(size > 1 for size in tuple(device_mesh.shape)[1:])",
}


def written(
    tests: str, sharding: str = SHARDING["part"], shape: str = TWO, names: str = NAMES
) -> str:
    return PROGRAM.format(tests=NAMED.format(tests), sharding=sharding, shape=shape, names=names)


@pytest.mark.parametrize("tests", TESTS.values(), ids=TESTS)
@pytest.mark.parametrize("sharding", SHARDING.values(), ids=SHARDING)
def test_two_ways_to_read_one_size(tmp_path: Path, tests: str, sharding: str) -> None:
    found = findings(program(tmp_path, written(tests, sharding)), "FSDP301")
    assert not found


@pytest.mark.parametrize("test", ["name", "names or none", "getattr"])
def test_a_mesh_of_unknown_dimensions(tmp_path: Path, test: str) -> None:
    sizes = "tuple(config.sizes.values())", ", mesh_dim_names=tuple(config.sizes.keys())"
    tests = TESTS[test].replace("device_mesh.size(1)", 'device_mesh["shard"].size()')
    sharding = '"shard" in mesh.mesh_dim_names and ' + SHARDING["product"]
    found = findings(program(tmp_path, written(tests, sharding, *sizes)), "FSDP301")
    assert not found


def test_an_unnamed_mesh(tmp_path: Path) -> None:
    code = written(TESTS["any"], SHARDING["number"], names="")
    found = findings(program(tmp_path, code), "FSDP301")
    assert not found


@pytest.mark.parametrize(
    "tests", ['device_mesh["replicate"].size() > 1', "device_mesh.shape[0] > 1", "config.parts > 1"]
)
def test_another_size(tmp_path: Path, tests: str) -> None:
    found = findings(program(tmp_path, written(tests)), "FSDP301")
    assert found


def test_another_mesh(tmp_path: Path) -> None:
    code = written(TESTS["name"]).replace("save(mesh,", "save(other,")
    other = f"other = init_device_mesh('cuda', (config.a, config.b){NAMES})\nmodel ="
    found = findings(program(tmp_path, code.replace("model =", other, 1)), "FSDP301")
    assert found


def test_a_text_is_no_strategy(tmp_path: Path) -> None:
    code = written("config.parts > 1").replace('"whole"', '"ddp"')
    found = findings(program(tmp_path, code), "FSDP301")
    assert found


UNKNOWN_SHAPE = "tuple(config.sizes)", ", mesh_dim_names=tuple(config.names)"


@pytest.mark.parametrize(
    "test",
    [
        "any(size > 1 for size in device_mesh.shape)",
        "not all([size == 1 for size in tuple(device_mesh.shape)])",
    ],
)
def test_a_question_to_all_dimensions_has_one_answer(tmp_path: Path, test: str) -> None:
    code = written(test, test.replace("device_mesh", "mesh"), *UNKNOWN_SHAPE)
    found = findings(program(tmp_path, code), "FSDP301")
    assert not found


def test_a_question_to_some_dimensions_is_another_one(tmp_path: Path) -> None:
    test = "any(size > 1 for size in {})"
    tests, sharding = test.format("device_mesh.shape[1:]"), test.format("mesh.shape")
    found = findings(program(tmp_path, written(tests, sharding, *UNKNOWN_SHAPE)), "FSDP301")
    assert found
