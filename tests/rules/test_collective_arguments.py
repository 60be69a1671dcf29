"""FSDP523 and FSDP524: lists that collectives get, and results that are read before they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Names:
    def __init__(self):
        self.box = [None]

    def share(self):
        {share}


def finish(*works):
    for one in works:
        one is None or one.wait()


dist.init_process_group()
number, ranks = dist.get_rank(), dist.get_world_size()
net = fully_shard(nn.Linear(8, 8))
rows = torch.ones(2)
Names().share()
{body}
"""
EMPTY = "torch.empty_like(rows)"


def codes(folder: Path, *, share: str = "pass", body: str = "") -> set[str]:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(share=share, body=body))
    rules = [rule_by_code("FSDP523"), rule_by_code("FSDP524")]
    return {one.rule.code for one in check(load([path]), [rule() for rule in rules if rule])}


@pytest.mark.parametrize(
    ("share", "found"),
    [
        ("box = ['a']; dist.broadcast_object_list(box)", True),
        ("box = [None] * 2; dist.broadcast_object_list(box)", True),
        ("box = ['a']; dist.broadcast_object_list(box); print(box)", False),
        ("box = self.box; dist.broadcast_object_list(box)", False),
        ("box = list(self.box); dist.broadcast_object_list(box)", False),
        ("held = box = self.box; dist.broadcast_object_list(box)", False),
    ],
)
def test_lists_that_nothing_reads(tmp_path: Path, share: str, found: bool) -> None:
    assert codes(tmp_path, share=share) == ({"FSDP523"} if found else set())


def test_lists_in_functions_that_no_program_calls(tmp_path: Path) -> None:
    sender = "def send(answer):\n    box = [answer]\n    dist.broadcast_object_list(box, src=0)\n"
    assert codes(tmp_path, body=sender) == set()
    assert codes(tmp_path, body=f"{sender}send(rows)") == {"FSDP523"}
    receiver = "def collect(x):\n    dist.gather_object(x, [None] * ranks)\n"
    assert codes(tmp_path, body=receiver) == {"FSDP523"}


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        (f"[{EMPTY} for _ in range(ranks)]", True),
        (f"[{EMPTY} for _ in range(ranks)] if number == 0 else None", False),
        (f"[{EMPTY} for _ in range(ranks if number == 0 else 0)]", False),
        (f"[{EMPTY}] * ranks if not number else []", False),
        (f"[{EMPTY} for _ in range(2)] if place == 0 else None", False),
        (f"[{EMPTY}, {EMPTY}] if place == 0 else None", False),
        (f"[{EMPTY}, {EMPTY}] if mesh.size() > 1 else None", True),
        (f"None\nif place == 0:\n    parts = [{EMPTY}, {EMPTY}]", False),
    ],
)
def test_lists_of_one_rank(tmp_path: Path, parts: str, found: bool) -> None:
    mesh = "mesh = init_device_mesh('cpu', (2, 2), mesh_dim_names=('dp', 'tp'))['tp']\n"
    place = "place = mesh.get_local_rank()\n"
    body = f"{mesh}{place}parts = {parts}\ndist.gather(rows, parts)"
    assert codes(tmp_path, body=body) == ({"FSDP523"} if found else set())


@pytest.mark.parametrize(
    ("wait", "found"),
    [
        ("pass", True),
        ("print(work)", True),
        ("work.wait()", False),
        ("finish(work)", False),
        ("work.get_future().wait()", False),
        ("torch.cuda.synchronize()", False),
        ("work is not None and work.wait()", False),
    ],
)
def test_results_read_early(tmp_path: Path, wait: str, found: bool) -> None:
    body = f"work = dist.all_reduce(rows, async_op=True)\n{wait}\nprint(rows.sum())"
    assert codes(tmp_path, body=body) == ({"FSDP524"} if found else set())
