"""Facts that one program has under conditions that no run of the other was tried with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fsdplint.comparison.compare import Outcome, compare, configurations
from fsdplint.interpreter import load

PROGRAM = """
import argparse
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--distill", action="store_true")
parser.add_argument("--bf16", action="store_true")
args = parser.parse_args()


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Linear(4, 4)


if args.distill:
    model = Pair()
    trained = model.student
else:
    trained = nn.Linear(4, 4)
if args.bf16:
    {cast}
else:
    trained.requires_grad_(True)
if args.distill:
    fully_shard(trained)
else:
    fully_shard(trained)
"""


@pytest.mark.parametrize(
    ("cast", "distills", "differs"),
    [
        ("trained.to(torch.bfloat16)", True, False),
        ("trained.to(torch.bfloat16)", False, False),
        ("pass", True, True),
    ],
)
def test_a_cast_under_two_conditions(
    tmp_path: Path, cast: str, distills: bool, differs: bool
) -> None:
    """distills: whether a run of the second program has the conditions of the cast."""
    runs = []
    for name, text in (("before", "trained.to(torch.bfloat16)"), ("after", cast)):
        path = tmp_path / name / "train.py"
        path.parent.mkdir()
        path.write_text(PROGRAM.format(cast=text), encoding="utf-8")
        runs.append(configurations(load([path], with_arguments=True).traces))
    before, after = runs
    after = [run for run in after if distills or ("args.distill", True) not in run.conditions]
    (cast_fact,) = [one for one in compare(before, after) if "cast" in one.topic]
    assert (cast_fact.outcome is Outcome.DIFFERS) is differs
    assert ("tried" in cast_fact.reason) is not distills


SAVES = """
import argparse
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--save", action="store_true")
parser.add_argument("--moments", action="store_true")
args = parser.parse_args()
model = nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
state = {{"step": 1}}
if args.save:
    if args.moments:
        {moments}
        torch.save(state, "x.pt")
"""


@pytest.mark.parametrize(
    ("moments", "saves", "member", "differs"),
    [
        ('state["moments"] = optimizer.state_dict()', True, False, False),
        ('state["moments"] = optimizer.state_dict()', False, False, False),
        ("pass", True, False, True),
        ("pass", True, True, False),
    ],
)
def test_a_file_under_two_conditions(
    tmp_path: Path, moments: str, saves: bool, member: bool, differs: bool
) -> None:
    """What a file has under two conditions.

    Args:
        saves: whether a run of the second program has both conditions of the entry.
        member: whether this run decides about the name of a member that is a constant before.
    """
    runs = []
    for name, text in (
        ("before", 'state["moments"] = optimizer.state_dict()'),
        ("after", moments),
    ):
        path = tmp_path / name / "train.py"
        path.parent.mkdir()
        path.write_text(SAVES.format(moments=text), encoding="utf-8")
        runs.append(configurations(load([path], with_arguments=True).traces))
    before, after = runs
    both = frozenset([("args.save", True), ("args.moments", True)])
    other = frozenset([("args.save", True), ("args.moments", False)])
    if not saves:
        after = [run for run in after if not both <= run.conditions]
        after.append(replace(after[0], conditions=other))
    if member:
        chosen = frozenset([("config.kind == 'FULL_STATE_DICT'", True)])
        after = [replace(run, conditions=run.conditions | chosen) for run in after]
    key = ("content of a file under a key", "moments")
    found = [one for one in compare(before, after) if (one.topic, one.subject) == key]
    assert [one.outcome is Outcome.DIFFERS for one in found] == [differs]
    assert ("tried" in found[0].reason) is (member or not saves)
