"""FSDP302 on optimizer states: which files certainly hold whole tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import argparse
import os
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--folder")
args = parser.parse_args()
model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
"""

SHARDED = 'torch.save({"optimizer": optimizer.state_dict()}, os.path.join(folder, "state.pt"))'
WHOLE = SHARDED.replace(
    "optimizer.state_dict()", "get_optimizer_state_dict(model, optimizer, options=options)"
)
OTHER = 'torch.save({"optimizer": state}, os.path.join(folder, "state.pt"))'
READ = """
for folder in sorted(os.listdir(args.folder)):
    state = torch.load(os.path.join(folder, "state.pt"))
    optimizer.load_state_dict(state["optimizer"])
"""


def found(tmp_path: Path, body: str) -> bool:
    path = tmp_path / "program.py"
    path.write_text(HEAD + body)
    rule = rule_by_code("FSDP302")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "body",
    [
        READ,
        READ + SHARDED,
        READ + OTHER,
        READ + WHOLE + "\n" + SHARDED,
    ],
    ids=["another program's", "sharded", "unknown", "either"],
)
def test_a_file_that_may_hold_dtensors(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)


def test_a_file_of_a_program_that_gathers_its_states(tmp_path: Path) -> None:
    assert found(tmp_path, READ + WHOLE)


def test_the_very_file_decides(tmp_path: Path) -> None:
    first = WHOLE.replace('os.path.join(folder, "state.pt")', '"whole.pt"')
    read = 'optimizer.load_state_dict(torch.load("whole.pt")["optimizer"])'
    assert found(tmp_path, f"folder = args.folder\n{SHARDED}\n{first}\n{read}\n")
