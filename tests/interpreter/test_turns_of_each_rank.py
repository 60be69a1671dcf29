"""Loops whose turns the ranks take one after the other, each its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Called, Ranks
from fsdplint.trace.queries.rank_divergence import unmatched_collectives

HEAD = """\
import sys

import torch
import torch.distributed as dist
from rows import read_rows
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
model = nn.Linear(4, 1)
fully_shard(model)
rows = read_rows(sys.argv[1])
"""
OWN = "for i, row in enumerate(rows):\n    if i % ranks != rank:\n        continue\n"
COUNTED = "i = 0\nfor row in rows:\n    i += 1\n    if i % ranks != rank:\n        continue\n"
TURNS = "for turn in range(ranks):\n    if turn != rank:\n        continue\n"


def apart(folder: Path, code: str) -> list[str]:
    """The collectives of which the ranks run different numbers."""
    (trace, *_) = program(folder, code, header=HEAD).traces
    return [event.kind for event in unmatched_collectives(trace)]


@pytest.mark.parametrize("loop", [OWN, COUNTED, TURNS])
@pytest.mark.parametrize(
    ("body", "after", "found"),
    [
        ("    model(row)\n", "", False),
        ("    model(row)\n", "dist.barrier()\n", False),
        ("    dist.all_reduce(row)\n", "", False),
        ("    model(row)\n", "    dist.barrier()\n", True),
    ],
)
def test_a_turn_of_each_rank(tmp_path: Path, loop: str, body: str, after: str, found: bool) -> None:
    if after.startswith(" "):  # all ranks, in each turn
        loop = loop.replace("!= rank:\n        continue\n", "== rank:\n    ")
    body = body.replace("row", "rows[0]")
    assert bool(apart(tmp_path, loop + body + after)) is found


@pytest.mark.parametrize("test", ["number % ranks != rank", "len(rows) % ranks != rank"])
def test_a_test_that_is_the_same_in_each_turn(tmp_path: Path, test: str) -> None:
    code = f"number = int(sys.argv[2])\nfor row in rows:\n    if {test}:\n        continue\n"
    assert apart(tmp_path, f"{code}    model(row)\n")


def test_a_generator_of_own_elements(tmp_path: Path) -> None:
    own = OWN.replace("\n", "\n    ")
    code = f"def own(ranks, rank):\n    {own}    yield row\n"
    code += "for row in own(ranks, rank):\n    model(row)\n"
    assert events(program(tmp_path, code, header=HEAD), Called)
    assert apart(tmp_path, code) == []


def test_all_ranks_use_the_elements_of_a_generator(tmp_path: Path) -> None:
    own = OWN.replace("\n", "\n    ")
    code = f"def own(ranks, rank):\n    {own}    yield row\n"
    code += "for row in own(ranks, rank):\n    {test}model(row)\n"
    found = events(program(tmp_path, code.format(test=""), header=HEAD), Called)
    assert {event.ranks for event in found} == {Ranks.ALL}
    skipped = program(tmp_path, code.format(test="if row.sum() > 0: "), header=HEAD)
    assert [one.rule.code for one in findings(skipped, "FSDP501")] == ["FSDP501"]


@pytest.mark.parametrize("copied", ["row", "bytes(row)", "bytearray(row)", "memoryview(row)"])
def test_copies_of_own_elements(tmp_path: Path, copied: str) -> None:
    own = OWN.replace("\n", "\n    ")
    code = f"def own(ranks, rank):\n    {own}    yield row\nfor row in own(ranks, rank):\n"
    code += f"    taken = torch.tensor({copied})\n    if taken.sum() > 0: model(taken)\n"
    found = findings(program(tmp_path, code, header=HEAD), "FSDP501")
    assert [one.rule.code for one in found] == ["FSDP501"]
