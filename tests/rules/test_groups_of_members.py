"""`new_group` on the ranks of the new group alone: FSDP501."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

BEGIN = """
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for first in range(0, size, 2):
    members = list(range(first, first + 2))
"""


@pytest.mark.parametrize(
    "code",
    [
        "    if rank in members:\n        group = dist.new_group(members)\n",
        "    if rank in members:\n        group = dist.new_group(ranks=members)\n",
        "    if rank not in members:\n        continue\n    group = dist.new_group(members)\n",
    ],
)
def test_only_the_members_make_a_group(tmp_path: Path, code: str) -> None:
    (found,) = findings(program(tmp_path, BEGIN + code), "FSDP501")
    assert "only some ranks reach it" in found.message
    assert "also those that are no members" in (found.help or "")
    assert found.fix is None


@pytest.mark.parametrize(
    "code",
    [
        "    made = dist.new_group(members)\n    if rank in members:\n        group = made\n",
        "    if rank in members:\n"
        "        group = dist.new_group(members, use_local_synchronization=True)\n",
        "    if rank in members:\n        group = dist.new_group(members)\n"
        "    else:\n        dist.new_group(members)\n",
    ],
)
def test_all_ranks_make_a_group(tmp_path: Path, code: str) -> None:
    assert not findings(program(tmp_path, BEGIN + code), "FSDP501")


def test_the_only_group_needs_no_other_ranks(tmp_path: Path) -> None:
    """Its number is the same on all its ranks."""
    body = (
        'dist.init_process_group("gloo")\nmembers = [0, 1]\n'
        "if dist.get_rank() in members:\n    group = dist.new_group(members)\n"
    )
    assert not findings(program(tmp_path, body), "FSDP501")
