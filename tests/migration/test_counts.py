"""Sizes of FSDP1's parameters: counted as this rank's part where the ranks add their parts up."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"), use_orig_params=True{arguments})
{count}
model(torch.randn(2, 4)).sum().backward()
"""
COUNT = "local = sum(p.numel() for p in model.parameters())\n"
ADDED_UP = {
    "a tensor": COUNT + "total = torch.tensor([local])\ndist.all_reduce(total)",
    "at once": "total = torch.tensor(sum(p.numel() for p in model.parameters()))\ndist.all_reduce(total)",
    "in a loop": "local = 0\nfor p in model.parameters():\n    local += p.nelement()\n"
    "counts = [None] * 2\ndist.all_gather_object(counts, local)",
    "a product": COUNT + "print(local * dist.get_world_size())",
    "a product with a variable": "ranks = dist.get_world_size()\n"
    + COUNT
    + "print(ranks * local / 1e9)",
}
NOT_ADDED_UP = {
    "printed": COUNT + "print(local)",
    "another number": COUNT + "other = torch.ones(1)\ndist.all_reduce(other)",
    "a gradient of the loop": COUNT
    + "for p in model.parameters():\n    if p.grad is None:\n        dist.barrier()",
}


def migrated(folder: Path, count: str, arguments: str = "") -> tuple[str, list[str]]:
    file = folder / "train.py"
    file.write_text(PROGRAM.format(count=count, arguments=arguments))
    (plan,) = plans_of(load([file]))
    assert not plan.blockers, [blocker.reason for blocker in plan.blockers]
    edited = " ".join(edit.text for edit in plan.edits)
    return edited, [note.text for note in plan.notes]


@pytest.mark.parametrize("count", ADDED_UP.values(), ids=ADDED_UP)
def test_parts_that_are_added_up(tmp_path: Path, count: str) -> None:
    edited, notes = migrated(tmp_path, count)
    assert "p.to_local()" in edited
    assert not any("counted whole" in note for note in notes)


@pytest.mark.parametrize("count", NOT_ADDED_UP.values(), ids=NOT_ADDED_UP)
def test_other_counts_have_a_note(tmp_path: Path, count: str) -> None:
    edited, notes = migrated(tmp_path, count)
    assert "to_local" not in edited
    assert any("counted whole" in note for note in notes)


@pytest.mark.parametrize("count", ADDED_UP.values(), ids=ADDED_UP)
def test_parts_of_the_inner_module_that_are_added_up(tmp_path: Path, count: str) -> None:
    edited, _ = migrated(tmp_path, count.replace("model.parameters()", "model.module.parameters()"))
    assert "p.to_local()" in edited


def test_other_counts_of_the_inner_module_have_a_note(tmp_path: Path) -> None:
    count = "print(sum(p.numel() for _, p in model.module.named_parameters()))"
    edited, notes = migrated(tmp_path, count)
    assert "to_local" not in edited
    assert any("counted whole" in note for note in notes)
