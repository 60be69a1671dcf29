"""Parameters that a wrapper ignores, by what its arguments hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

BEFORE = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

torch.distributed.init_process_group("nccl")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
ignored = {ignored}
model = FSDP(model, ignored_modules=ignored)
"""
AFTER = """\
import torch
from torch.distributed.fsdp import fully_shard

torch.distributed.init_process_group("nccl")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
fully_shard(model)
"""


@pytest.mark.parametrize(
    ("ignored", "differs"),
    [("None", False), ("[]", False), ("()", False), ("set()", False), ("[model[0]]", True)],
)
def test_an_empty_list_ignores_nothing(ignored: str, differs: bool, tmp_path: Path) -> None:
    sides = []
    for name, text in (("before", BEFORE.format(ignored=ignored)), ("after", AFTER)):
        file = tmp_path / name / "train.py"
        file.parent.mkdir()
        file.write_text(text)
        sides.append(side(file))
    facts = compare_sides(*sides).facts
    found = {one.topic for one in facts if one.outcome is not Outcome.AGREES}
    assert ("ignored parameters" in found) is differs
