"""`all` and `any` of tests of which one is a test of the rank."""

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
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, settings = dist.get_rank(), read_settings()
model = nn.Linear(8, 8)
fully_shard(model)
if TEST:
    dist.barrier()
"""
ON_ONE_RANK = [
    "any([rank == 0])",
    "all([rank == 0])",
    "all((True, rank == 0))",
    "any([False, rank == 0])",
    "all([rank == 0, model(torch.ones(8)).sum() > 0])",
]
OTHERS = [
    "any([rank >= 0])",
    "all([rank == 0, False])",
    "any([rank == 0, True])",
    "any([rank == 0, settings.saves])",
    "all([settings.alone, rank == 0])",
    "any([rank == 0, rank == 1])",
    "any([rank == 0, model(torch.ones(8)).sum() > 0])",
    "any([*settings.tests, rank == 0])",
]


def findings(folder: Path, test: str) -> int:
    main = folder / "main.py"
    main.write_text(PROGRAM.replace("TEST", test))
    rule = rule_by_code("FSDP501")
    assert rule is not None
    return len(check(load([main]), [rule()]))


@pytest.mark.parametrize("test", ON_ONE_RANK)
def test_a_test_of_the_rank(test: str, tmp_path: Path) -> None:
    assert findings(tmp_path, test) == 1


@pytest.mark.parametrize("test", OTHERS)
def test_other_tests(test: str, tmp_path: Path) -> None:
    assert findings(tmp_path, test) == 0
