"""FSDP403 where a test counts the elements of a list that a comprehension has made."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import argparse
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--count", type=int, default=2)
args = parser.parse_args()
dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def stream():
    while True:
        yield torch.randn(4, 8)


batches = stream()
for step in range(4):
"""
BODY = """\
        model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LIST = "micro = [next(batches) for _ in range(args.count)]\n"
LOOP = "for i, batch in enumerate(micro):\n"
SWITCH = "    model.set_requires_gradient_sync({})\n"
FOUND = {
    "one too many": LIST + LOOP + SWITCH.format("i == args.count"),
    "in a variable": LIST + LOOP + "    last = i >= args.count\n" + SWITCH.format("last"),
    "the length of the list": LIST + LOOP + SWITCH.format("i == len(micro)"),
    "in branches": LIST + LOOP
    + "    if i < args.count:\n    " + SWITCH.format("False")
    + "    else:\n    " + SWITCH.format("True"),
    "counted from one": LIST + "for i, batch in enumerate(micro, start=1):\n"
    + SWITCH.format("i == args.count - 1"),
    "a constant": "micro = [next(batches) for _ in range(4)]\n" + LOOP + SWITCH.format("i == 4"),
    "a range with a begin": "micro = [next(batches) for _ in range(1, args.count)]\n" + LOOP
    + SWITCH.format("i == args.count - 1"),
    "a list of a list": LIST + "micro = [batch * 2 for batch in micro]\n" + LOOP
    + SWITCH.format("i == args.count"),
    "an element replaced": LIST + "micro[0] = torch.ones(4, 8)\n" + LOOP
    + SWITCH.format("i == args.count"),
}  # fmt: skip
SILENT = {
    "the last": LIST + LOOP + SWITCH.format("i == args.count - 1"),
    "the last of the list": LIST + LOOP + SWITCH.format("i == len(micro) - 1"),
    "the last, counted from one": LIST + "for i, batch in enumerate(micro, 1):\n"
    + SWITCH.format("i == args.count"),
    "one more": "micro = [next(batches) for _ in range(args.count + 1)]\n" + LOOP
    + SWITCH.format("i == args.count"),
    "two of each turn": "micro = [b for _ in range(args.count) for b in (next(batches), 0)]\n" + LOOP
    + SWITCH.format("i >= args.count"),
    "some of them": "micro = [b for b in [next(batches) for _ in range(9)] if b.sum() > 0]\n" + LOOP
    + SWITCH.format("i == 8"),
    "appended": LIST + "micro.append(next(batches))\n" + LOOP + SWITCH.format("i == args.count"),
    "extended": LIST + "more = micro\nmore.extend(micro[:1])\n" + LOOP
    + SWITCH.format("i == args.count"),
    "added in place": LIST + "micro += micro\n" + LOOP + SWITCH.format("i >= args.count"),
    "inserted": LIST + "micro.insert(0, next(batches))\n" + LOOP + SWITCH.format("i == args.count"),
    "slice assigned": LIST + "micro[1:] = [micro[0]] * 9\n" + LOOP + SWITCH.format("i == args.count"),
    "popped and appended": LIST + "micro.pop()\nmicro.append(0)\nmicro.append(1)\n" + LOOP
    + SWITCH.format("i == args.count"),
    "given away": "import helpers\n" + LIST + "helpers.pad(micro)\n" + LOOP
    + SWITCH.format("i == args.count"),
    "a sum of lists": LIST + "micro = micro + [next(batches)]\n" + LOOP
    + SWITCH.format("i == args.count"),
    "a slice": LIST + "n = args.count - 1\nmicro = micro[:n]\n" + LOOP + SWITCH.format("i == n - 1"),
    "the length of a slice": LIST + "micro = micro[1:]\n" + LOOP
    + SWITCH.format("i == len(micro) - 1"),
}  # fmt: skip


def codes(folder: Path, loop: str) -> list[str]:
    path = folder / "train.py"
    path.write_text(HEAD + textwrap.indent(loop, "    ") + BODY)
    rule = rule_by_code("FSDP403")
    assert rule is not None
    return [one.rule.code for one in check(load([path]), [rule()])]


@pytest.mark.parametrize("name", FOUND)
def test_never_synchronised(name: str, tmp_path: Path) -> None:
    assert codes(tmp_path, FOUND[name]) == ["FSDP403"]


@pytest.mark.parametrize("name", SILENT)
def test_synchronised_or_not_certain(name: str, tmp_path: Path) -> None:
    assert codes(tmp_path, SILENT[name]) == []
