"""FSDP320: which ranks read a file, and what orders them after its write."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import os, time, torch
import torch.distributed as dist
from pathlib import Path
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.checkpoint.state_dict import get_model_state_dict, StateDictOptions

dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Linear(4, 4)
fully_shard(model)
step, path = 3, os.environ["FILE"]
full = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=full)
"""
WRITE = """
if rank == 0:
    torch.save(state, path)
"""


def lines(folder: Path, body: str) -> list[int]:
    file = folder / "train.py"
    file.write_text(HEAD + body)
    (folder / "pyproject.toml").touch()
    rule = rule_by_code("FSDP320")
    assert rule is not None
    return [found.site.location().line for found in check(load([file]), [rule()])]


@pytest.mark.parametrize(
    "body",
    [
        WRITE + "torch.load(path)",
        WRITE + "print('written')\nloaded = torch.load(str(Path(path)), weights_only=True)",
        "if rank == 0:\n    torch.save(state, path)\nelse:\n    torch.load(path)",
        "def read(name):\n    return torch.load(name)\n" + WRITE + "if rank != 0:\n    read(path)",
        "file = Path('out') / f'{step}.pt'\n"
        "if not rank:\n    file.parent.mkdir()\n    torch.save(state, file)\ntorch.load(file)",
    ],
)
def test_a_read_without_order_is_found(tmp_path: Path, body: str) -> None:
    assert len(lines(tmp_path, body)) == 1


@pytest.mark.parametrize(
    "body",
    [
        WRITE + "dist.barrier()\ntorch.load(path)",
        WRITE + "model(torch.ones(2, 4))\ntorch.load(path)",
        WRITE + "from elsewhere import wait_for_everyone\nwait_for_everyone()\ntorch.load(path)",
        WRITE + "x = torch.ones(1)\n"
        "dist.send(x, 1) if rank == 0 else dist.recv(x, 0)\ntorch.load(path)",
        WRITE + "while not os.path.exists(path):\n    pass\ntorch.load(path)",
        WRITE + "while not Path(path).exists():\n    time.sleep(1)\ntorch.load(path)",
        WRITE + "if rank == 0:\n    torch.load(path)",
        WRITE + "torch.load(os.environ['OTHER'])",
        WRITE
        + "if rank == 0:\n    dist.barrier()\nelse:\n    dist.barrier()\n    torch.load(path)",
        "torch.save(state, f'{rank}.pt')\ntorch.load(f'{rank}.pt')",
        "torch.load(path)\n" + WRITE,
        "if rank != 0:\n    dist.barrier()\n"
        + WRITE
        + "if rank == 0:\n    dist.barrier()\ntorch.load(path)",
        "from elsewhere import one_first\nwith one_first(rank):\n"
        "    if rank == 0:\n        torch.save(state, path)\n    torch.load(path)",
        WRITE + "while True:\n    try:\n        torch.load(path)\n        break\n"
        "    except FileNotFoundError:\n        time.sleep(1)",
    ],
)
def test_a_read_that_may_be_ordered_is_not_reported(tmp_path: Path, body: str) -> None:
    assert lines(tmp_path, body) == []


FOLDER = """
if rank == 0:
    os.makedirs(path)
"""
LOG = "with open(os.path.join(path, f'{rank}.log'), 'w') as log:\n    log.write('x')"


def test_a_folder_of_one_rank_is_found(tmp_path: Path) -> None:
    assert len(lines(tmp_path, FOLDER + LOG)) == 1


@pytest.mark.parametrize(
    "body",
    [
        FOLDER + "os.makedirs(path, exist_ok=True)\n" + LOG,
        FOLDER + "os.makedirs(os.path.join(path, 'logs'), exist_ok=True)\n" + LOG,
        FOLDER + "from elsewhere import Writer\nwriter = Writer(path)\n" + LOG,
        FOLDER + "with open(os.path.join(path, 'rows.json')) as rows:\n    rows.read()",
        FOLDER.replace("path", "path, exist_ok=True") + "dist.barrier()\n" + LOG,
    ],
)
def test_a_folder_that_may_be_there_is_not_reported(tmp_path: Path, body: str) -> None:
    assert lines(tmp_path, body) == []
