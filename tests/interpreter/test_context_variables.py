"""Context managers that a variable holds: which of them a `with` statement certainly enters."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

STEPS = """
import argparse
from contextlib import nullcontext

args = argparse.ArgumentParser().parse_args()
model = FSDP(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters())
accumulate = args.accumulate
data = args.data
for step in range(10):
    for i in range(accumulate):
        {choose}
        with {context}:
            model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
NEVER_REDUCED = {
    "a variable": ("context = model.no_sync()", "context"),
    "never the last": (
        "context = model.no_sync() if i != accumulate else nullcontext()",
        "context",
    ),
    "a function": ("enter = model.no_sync if accumulate > 1 else nullcontext", "enter()"),
    "an if": (
        "if i == accumulate:\n            context = nullcontext()\n"
        "        else:\n            context = model.no_sync()",
        "context",
    ),
}
SOMETIMES_REDUCED = {
    "the last": (
        "context = model.no_sync() if i < accumulate - 1 else nullcontext()",
        "context",
    ),
    "an if": (
        "if i == accumulate - 1:\n            context = nullcontext()\n"
        "        else:\n            context = model.no_sync()",
        "context",
    ),
    "of data": ("context = nullcontext() if data[i].last else model.no_sync()", "context"),
    "in the statement": ("pass", "(model.no_sync() if i % 4 else nullcontext())"),
    "a function": ("enter = model.no_sync if i % 4 else nullcontext", "enter()"),
    "the last of many": ("accumulate = 100", "(model.no_sync() if i != 99 else nullcontext())"),
}


@pytest.mark.parametrize("choose, context", NEVER_REDUCED.values(), ids=NEVER_REDUCED)
def test_no_sync_that_is_certainly_entered(tmp_path: Path, choose: str, context: str) -> None:
    body = STEPS.format(choose=choose, context=context)
    assert findings(program(tmp_path, body), "FSDP403")


@pytest.mark.parametrize("choose, context", SOMETIMES_REDUCED.values(), ids=SOMETIMES_REDUCED)
def test_no_sync_that_is_entered_at_times(tmp_path: Path, choose: str, context: str) -> None:
    body = STEPS.format(choose=choose, context=context)
    assert not findings(program(tmp_path, body), "FSDP403")


def test_an_index_beside_data_is_below_its_end(tmp_path: Path) -> None:
    """`zip` of a range and of data of unknown length gives the numbers of the range."""
    choose = "context = model.no_sync() if i != accumulate else nullcontext()"
    body = STEPS.format(choose=choose, context="context")
    body = body.replace("for i in range(accumulate)", "for i, x in zip(range(accumulate), data)")
    assert findings(program(tmp_path, body), "FSDP403")
