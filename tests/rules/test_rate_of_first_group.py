"""FSDP434 knows the first parameter group by its value, in whatever way the program names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
from elsewhere import schedule
from torch import nn
from torch.distributed.fsdp import fully_shard

FIRST = 0


class Warmup:
    def __init__(self, held):
        self.held = held

    def turn(self, group, number):
        group["lr"] = 0.1 * 0.5**number


net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(net)
parts = [{"params": list(net[0].parameters())}, {"params": list(net[1].parameters())}]
engine = torch.optim.SGD(parts, lr=0.1)
held = engine.param_groups
one, two = engine.param_groups
first, *rest = engine.param_groups
*most, last = engine.param_groups
warmup = Warmup(held)
for number in range(3):
    net(torch.randn(2, 8)).sum().backward()
    engine.step()
    engine.zero_grad()
"""

FIRST = {
    "as torch names it": 'engine.param_groups[0]["lr"] = 0.1 * 0.5**number',
    "a variable": 'held[0]["lr"] = 0.1 * 0.5**number',
    "the group in a variable": 'g = engine.param_groups[0]\n    g["lr"] = 0.1 * 0.5**number',
    "a constant": 'held[FIRST]["lr"] = 0.1 * 0.5**number',
    "unpacked": 'one["lr"] = 0.1 * 0.5**number',
    "unpacked, with a rest": 'first["lr"] = 0.1 * 0.5**number',
    "a method": "warmup.turn(warmup.held[0], number)",
    "update": "held[0].update(lr=0.1 * 0.5**number)",
    "update by a dict": 'held[0].update({"lr": 0.1 * 0.5**number})',
    "in place": 'held[0]["lr"] *= 0.5',
}
OTHERS = {
    "a loop": 'for g in held:\n        g["lr"] = 0.1 * 0.5**number',
    "a loop over some": 'for g in held[:1]:\n        g["lr"] = 0.1 * 0.5**number',
    "the last": 'held[-1]["lr"] = 0.1 * 0.5**number',
    "the first of the others": 'held[1:][0]["lr"] = 0.1 * 0.5**number',
    "the first of the rest": 'rest[0]["lr"] = 0.1 * 0.5**number',
    "one of most": 'most[1]["lr"] = 0.1 * 0.5**number',
    "the first from the end": 'list(reversed(held))[0]["lr"] = 0.1 * 0.5**number',
    "the first of an order": 'sorted(held, key=len)[0]["lr"] = 0.1 * 0.5**number',
    "both": 'held[0]["lr"] = 0.1\n    held[1]["lr"] = 0.1',
    "both, unpacked": 'one["lr"] = 0.1\n    two["lr"] = 0.1',
    "both, by update": 'held[0]["lr"] = 0.1\n    held[1].update(lr=0.1)',
    "the last, unpacked": 'held[0]["lr"] = 0.1\n    last["lr"] = 0.1',
    "code out of sight": 'held[0]["lr"] = 0.1\n    schedule(engine, number)',
    "code out of sight with a group": 'held[0]["lr"] = 0.1\n    schedule(held[1], number)',
    "code out of sight with the groups": 'held[0]["lr"] = 0.1\n    schedule(held[1:], number)',
    "another option": 'held[0]["momentum"] = 0.9',
}


def findings(tmp_path: Path, statement: str) -> int:
    path = tmp_path / "program.py"
    path.write_text(f"{PROGRAM}    {statement}\n")
    rule = rule_by_code("FSDP434")
    assert rule is not None
    return len(list(check(load([path]), [rule()])))


@pytest.mark.parametrize("form", FIRST)
def test_the_first_group(tmp_path: Path, form: str) -> None:
    assert findings(tmp_path, FIRST[form]) == 1


@pytest.mark.parametrize("form", OTHERS)
def test_other_groups(tmp_path: Path, form: str) -> None:
    assert findings(tmp_path, OTHERS[form]) == 0
