"""FSDP514 where the program asks for the process group before it uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


{is_main}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--short", action="store_true")
    args = parser.parse_args()
    if not (args.quiet or args.short) and is_main():
        print("building")
    dist.init_process_group("gloo")
    if args.short is not None and is_main():
        print("begins")
    model = nn.Linear(4, 4)
    fully_shard(model)
    torch.optim.AdamW(model.parameters())
    if dist.is_initialized():
        dist.destroy_process_group()


main()
"""

SPELLINGS = [
    "def is_main():\n    return dist.is_initialized() and dist.get_rank() == 0",
    "def is_main():\n    return not dist.is_initialized() or dist.get_rank() == 0",
    "def is_main():\n    ready = dist.is_initialized()\n    return ready and dist.get_rank() == 0",
    "def is_main():\n    rank = dist.is_initialized() and dist.get_rank()\n    return rank == 0",
    "def is_main():\n    return dist.get_rank() == 0 if dist.is_initialized() else True",
    "def is_main():\n    return (dist.is_available() and dist.is_initialized()) and not dist.get_rank()",
    "def is_main():\n    return bool(dist.is_initialized()) and dist.get_rank() == 0",
]


def missing(tmp_path: Path, is_main: str) -> int:
    """The number of findings."""
    file = tmp_path / "main.py"
    file.write_text(PROGRAM.format(is_main=is_main))
    rule = rule_by_code("FSDP514")
    assert rule is not None
    return len(check(load([file]), [rule()]))


@pytest.mark.parametrize("is_main", SPELLINGS)
def test_a_tested_group_is_not_missing(tmp_path: Path, is_main: str) -> None:
    assert missing(tmp_path, is_main) == 0


def test_a_group_that_is_not_tested_is_missing(tmp_path: Path) -> None:
    assert missing(tmp_path, "def is_main():\n    return dist.get_rank() == 0") == 1
