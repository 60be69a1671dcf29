"""FSDP403: windows of micro-batches, of which the last one may be shorter."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEADER = """\
import argparse
from itertools import islice
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--accum", type=int, default=4)
args = parser.parse_args()
dist.init_process_group("gloo")
model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = load_batches(args)
"""
ISLICE = """\
iterator = iter(batches)
while window := list(islice(iterator, args.accum)):
"""
SLICES = """\
for start in range(0, len(batches), args.accum):
    window = batches[start : start + args.accum]
"""
GENERATOR = """\
def windows(batches, size):
    iterator = iter(batches)
    while window := list(islice(iterator, size)):
        yield window

for window in windows(batches, args.accum):
"""
OF_A_LIST = """\
known = []
for batch in batches:
    known.append(torch.ones(2, 8))
for start in range(0, len(known), args.accum):
    window = known[start : start + args.accum]
"""
WINDOWS = [ISLICE, SLICES, GENERATOR, OF_A_LIST]
TURN = """\
    {before}
    for i, batch in enumerate(window{first}):
        {switch}
        (model(batch).sum() / args.accum).backward()
    {after}optimizer.step()
    optimizer.zero_grad()
"""
SWITCH = "model.set_requires_gradient_sync({test})"
LEAVES_OUT = [
    ("i + 1 == args.accum", ""),
    ("i == args.accum - 1", ""),
    ("(i + 1) % args.accum == 0", ""),
    ("i == args.accum", ", start=1"),
    ("not i < args.accum - 1", ""),
]
FITS = [
    ("i + 1 == len(window)", ""),
    ("i == len(window) - 1", ""),
    ("i >= len(window) - 1", ""),
    ("True", ""),
    ("i == len(window) - 1 or i + 1 == args.accum", ""),
    ("i == number_of(window)", ""),
]


def count(
    folder: Path,
    windows: str,
    test: str,
    *,
    first: str = "",
    before: str = "pass",
    after: str = "",
) -> int:
    switch = SWITCH.format(test=test)
    turn = TURN.format(before=before, first=first, switch=switch, after=after)
    return len(findings(program(folder, windows + turn, header=HEADER), "FSDP403"))


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize(("test", "first"), LEAVES_OUT)
def test_the_last_window_is_left_out(tmp_path: Path, windows: str, test: str, first: str) -> None:
    assert count(tmp_path, windows, test, first=first) == 1


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize(("test", "first"), FITS)
def test_each_window_synchronises(tmp_path: Path, windows: str, test: str, first: str) -> None:
    assert count(tmp_path, windows, test, first=first) == 0


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if len(window) < args.accum:\n        break", ""),
        ("if len(window) != args.accum:\n        continue", ""),
        ("pass", "if len(window) == args.accum:\n        "),
        ("if is_short(window):\n        continue", ""),
        ("window = padded(window, args.accum)", ""),
        ("window += window[: args.accum - len(window)]", ""),
        ("while len(window) < args.accum:\n        window.append(window[0])", ""),
        ("window.extend(window[: args.accum - len(window)])", ""),
        ("pad(window, args.accum)", ""),
    ],
)
def test_no_shorter_window_steps(tmp_path: Path, windows: str, before: str, after: str) -> None:
    assert count(tmp_path, windows, LEAVES_OUT[0][0], before=before, after=after) == 0


@pytest.mark.parametrize(
    "windows",
    [
        "for window in batches:\n",
        "for window in [batches[: args.accum]]:\n",
        "for window in [batches[0 : args.accum]]:\n",
        "for n in sizes:\n    window = batches[n : n + next_size(n)]\n",
    ],
)
def test_other_lists(tmp_path: Path, windows: str) -> None:
    assert count(tmp_path, windows, LEAVES_OUT[0][0]) == 0


CHECKED = """\
for start in range(0, len(batches), args.accum):
    window = batches[start : start + args.accum]
    for i, batch in enumerate(window):
        model.set_requires_gradient_sync(i + 1 == args.accum)
        loss = model(batch).sum()
        if not torch.isfinite(loss):
            {ends}
        (loss / len(window)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("ends", "number"), [("raise ValueError", 1), ("break", 0)])
def test_checks_of_the_loss(tmp_path: Path, ends: str, number: int) -> None:
    found = program(tmp_path, CHECKED.format(ends=ends), header=HEADER)
    assert len(findings(found, "FSDP403")) == number
