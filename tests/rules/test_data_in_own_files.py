"""FSDP301 and FSDP302 on sharded states that each rank writes to a file of its own and reads again."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--path")
args = parser.parse_args()
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
rank = dist.get_rank()
model = nn.Linear(8, 8)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
"""
LOAD = 'optimizer.load_state_dict(torch.load(path)["optim"])\n'
LOAD_MODEL = 'model.load_state_dict(torch.load(path)["model"])\n'
SAVE = 'torch.save({"optim": optimizer.state_dict()}, path)\n'


def codes(tmp_path: Path, body: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(HEAD + body)
    found = (rule_by_code(code) for code in ("FSDP301", "FSDP302"))
    return [one.rule.code for one in check(load([path]), [rule() for rule in found if rule])]


OWN = {
    "rank": 'f"part{rank}.pt"',
    "filled with zeros": '"part" + str(rank).zfill(5)',
    "device": 'f"part{torch.cuda.current_device()}.pt"',
    "device in a folder": 'os.path.join("parts", str(torch.cuda.current_device()), "optim.pt")',
    "number of the accelerator": '"part%d" % torch.accelerator.current_device_index()',
    "place in the mesh": 'f"part{mesh.get_local_rank()}.pt"',
    "process": 'f"part{os.getpid()}.pt"',
}


@pytest.mark.parametrize("path", OWN.values(), ids=OWN)
def test_a_rank_may_read_what_it_wrote(tmp_path: Path, path: str) -> None:
    assert codes(tmp_path, f"path = {path}\n{SAVE}{LOAD}") == []


@pytest.mark.parametrize("path", ['"model.pt"', "args.path", 'f"{args.path}/model.pt"'])
def test_a_file_of_all_ranks_holds_whole_tensors(tmp_path: Path, path: str) -> None:
    assert codes(tmp_path, f"path = {path}\n{LOAD_MODEL}") == ["FSDP302"]


@pytest.mark.parametrize("path", ['"optim.pt"', "args.path", 'f"{args.path}/optim.pt"'])
def test_a_file_that_the_program_writes_holds_what_it_writes(tmp_path: Path, path: str) -> None:
    assert codes(tmp_path, f"path = {path}\n{LOAD}{SAVE}") == ["FSDP301"]


@pytest.mark.parametrize(
    "save",
    [
        'torch.save(optimizer.state_dict(), f"{args.path}/part{rank}.pt")\n',
        'torch.save(model.state_dict(), f"{args.path}/part{rank}.pt")\n',
        "torch.save(args, args.path)\n",
    ],
)
def test_another_file_says_nothing_of_the_one_that_is_read(tmp_path: Path, save: str) -> None:
    assert codes(tmp_path, f"path = args.path\n{LOAD_MODEL}{save}") == ["FSDP302"]


def test_a_device_is_no_test_of_the_rank(tmp_path: Path) -> None:
    body = "if torch.cuda.current_device() != 'cpu':\n    model(torch.ones(2, 8))\n"
    path = tmp_path / "program.py"
    path.write_text(HEAD + body)
    rule = rule_by_code("FSDP501")
    assert rule is not None
    assert check(load([path]), [rule()]) == []


BUFFER = "from io import BytesIO as Memory\npath = Memory()\n"
READ = 'path.seek(0)\noptimizer.load_state_dict(torch.load(path, weights_only=False)["optim"])\n'


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (BUFFER + SAVE + READ, []),
        (BUFFER.replace("io import BytesIO", "tempfile import TemporaryFile") + SAVE + READ, []),
        (BUFFER + SAVE + "upload(path.getvalue())\n", ["FSDP301"]),
    ],
)
def test_a_buffer_that_a_rank_reads_again(tmp_path: Path, body: str, found: list[str]) -> None:
    assert codes(tmp_path, body) == found
