"""The coverage counts the files of a program that do not mention FSDP themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load

TRAIN = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
import helpers
import other

model = nn.Linear(8, 8)
{shard}
helpers.save(model.state_dict(), "a")
"""
HELPERS = """\
import torch


def save(state, path):
    torch.save(state, path)


def unused(path):
    return torch.load(path)
"""


@pytest.mark.parametrize(
    ("shard", "files", "missed"),
    [
        ("fully_shard(model)", ["helpers.py", "helpers.py", "train.py", "train.py"], [9]),
        ("pass", ["train.py"], []),
    ],
)
def test_files_of_a_sharded_run(
    tmp_path: Path, shard: str, files: list[str], missed: list[int]
) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(shard=shard))
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "other.py").write_text("numbers = [1, 2]\n")
    found = load([tmp_path / "train.py"]).coverage
    assert sorted(Path(one.source.path).name for one in found) == files
    assert [one.source.location(one.site.node).line for one in found if one.gap] == missed
