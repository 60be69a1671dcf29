"""FSDP501 where a rank leaves a loop or function only with a setting of the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

LOOP = """
import argparse

args = argparse.ArgumentParser().parse_args()
dist.init_process_group("nccl")
rank = dist.get_rank()
model = fully_shard(Net())
for turn, batch in enumerate(batches):
    model(batch).mean().backward()
    if {test}:
        break
"""
FUNCTION = """
import argparse

args = argparse.ArgumentParser().parse_args()
dist.init_process_group("nccl")
rank = dist.get_rank()
model = fully_shard(Net())


def evaluate():
    if {test}:
        return None
    return model(batch)


evaluate()
"""


@pytest.mark.parametrize("code", [LOOP, FUNCTION])
@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("rank == 0 and args.debug > 0", True),
        ("args.debug and rank == 0", True),
        ("rank == 0 and args.debug and turn > args.debug", True),
        ("args.debug and args.short", False),
    ],
)
def test_a_setting_beside_a_test_of_the_rank_is_tried(
    tmp_path: Path, code: str, test: str, found: bool
) -> None:
    codes = {
        one.rule.code for one in findings(program(tmp_path, code.format(test=test)), "FSDP501")
    }
    assert codes == ({"FSDP501"} if found else set())


EXITS = """
import os
import sys
from sys import exit as leave

stop = os._exit
dist.init_process_group("nccl")
rank = dist.get_rank()
model = fully_shard(Net())
if rank > 0:
    {exit}
dist.barrier()
"""


@pytest.mark.parametrize("exit", ["sys.exit()", "leave()", "stop(0)", "exit()"])
def test_a_rank_that_ends_its_program(tmp_path: Path, exit: str) -> None:
    found = findings(program(tmp_path, EXITS.format(exit=exit)), "FSDP501")
    assert [one.rule.code for one in found] == ["FSDP501"]
