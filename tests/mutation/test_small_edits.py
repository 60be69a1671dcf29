"""Small edits change what they name, and damage is what only two ranks show."""

from __future__ import annotations

import pytest
from damage import damage
from small_edits import edits
from two_ranks import TwoRanks

PROGRAM = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.tensor([1.5])
dist.all_reduce(total)
print(f"total {total.item():.2f}")
if rank == 0:
    print("done")
"""
KINDS = {
    "statement dropped": "dist.all_reduce(total)",
    "on rank 0": "dist.all_reduce(total)",
    "condition negated": "if rank == 0:",
    "rank is constant": "if rank == 0:",
    "function dropped": "dist.all_reduce(total)",
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_its_line(kind: str) -> None:
    lines = {
        PROGRAM.splitlines()[one.line - 1] for one in edits({"a.py": PROGRAM}) if one.kind == kind
    }
    assert KINDS[kind] in lines


def _edited(kind: str, line: str) -> str:
    found = [one for one in edits({"a.py": PROGRAM}) if one.kind == kind]
    (edit,) = [one for one in found if PROGRAM.splitlines()[one.line - 1] == line]
    return edit.files["a.py"]


@pytest.mark.parametrize(
    ("kind", "line", "world", "shown"),
    [
        ("statement dropped", "dist.all_reduce(total)", 1, ""),
        ("statement dropped", "dist.all_reduce(total)", 2, "prints 1.50 for 3.00"),
        ("on rank 0", "dist.all_reduce(total)", 1, ""),
        ("on rank 0", "dist.all_reduce(total)", 2, "hangs"),
        ("statement dropped", "rank = dist.get_rank()", 2, "an error of Python"),
    ],
)
def test_damage(two_ranks: TwoRanks, kind: str, line: str, world: int, shown: str) -> None:
    before = two_ranks.run(PROGRAM, world=world, parameters=True)
    after = two_ranks.run(_edited(kind, line), world=world, parameters=True)
    found = damage(before, after)
    assert found.startswith(shown) if shown else not found
    assert not damage(before, before)
