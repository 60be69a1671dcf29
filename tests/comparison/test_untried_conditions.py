"""Facts that one program has under conditions that no run of the other was tried with."""

from __future__ import annotations

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
