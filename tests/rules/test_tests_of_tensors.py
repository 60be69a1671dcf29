"""Tests of one tensor, which say more of it than the rules know: they report nothing behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.rules.fsdp307_ema_of_plain_copy import EmaOfPlainCopy

PROGRAM = """\
import copy
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def is_sharded(tensor):
    return isinstance(tensor, DTensor)


model = nn.Linear(4, 4)
average = copy.deepcopy(model)
fully_shard(model)
for mean, p in zip(average.parameters(), model.parameters()):
    {test}
        mean.lerp_(p, 0.1)
"""


@pytest.mark.parametrize(
    ("test", "reported"),
    [
        ("if True:", True),
        ("if not isinstance(p, DTensor):", False),
        ('if not hasattr(p, "full_tensor"):', False),
        ("if type(p) is not DTensor:", False),
        ("if not is_sharded(p):", False),
    ],
)
def test_an_average_under_a_test_of_its_tensor(test: str, reported: bool, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM.format(test=test))
    assert bool(check(load([file]), [EmaOfPlainCopy()])) is reported
