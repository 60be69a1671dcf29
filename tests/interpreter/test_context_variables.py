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


FUNCTIONS = """
import argparse
from contextlib import contextmanager, nullcontext
from functools import partial

args = argparse.ArgumentParser().parse_args()
model = fully_shard(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters())
accumulate = args.accumulate


@contextmanager
def without_sync(module=model):
    module.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        module.set_requires_gradient_sync(True)


class Accumulator:
    @contextmanager
    def paused(self):
        with without_sync():
            yield


accumulator = Accumulator()
for i in range(100):
    {choose}
    with context():
        model(torch.ones(2, 8)).sum().backward()
    if (i + 1) % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
CHOSEN = {
    "a function": "without_sync",
    "a partial": "partial(without_sync, model)",
    "a lambda": "lambda: without_sync(model)",
    "a method": "accumulator.paused",
}


@pytest.mark.parametrize("function", CHOSEN.values(), ids=CHOSEN)
@pytest.mark.parametrize("form", ["if", "one line"])
def test_a_function_that_is_called_at_times(tmp_path: Path, form: str, function: str) -> None:
    if form == "if":
        choose = (
            f"context = None\n    if (i + 1) % accumulate != 0:\n        context = {function}\n"
            "    else:\n        context = nullcontext"
        )
    else:
        choose = f"context = ({function}) if (i + 1) % accumulate != 0 else nullcontext"
    assert not findings(program(tmp_path, FUNCTIONS.format(choose=choose)), "FSDP403")


def test_two_lambdas(tmp_path: Path) -> None:
    choose = (
        "context = (lambda: without_sync()) if (i + 1) % accumulate else (lambda: nullcontext())"
    )
    assert not findings(program(tmp_path, FUNCTIONS.format(choose=choose)), "FSDP403")


@pytest.mark.parametrize("function", CHOSEN.values(), ids=CHOSEN)
def test_a_function_that_is_called_in_the_turn_of_the_step(tmp_path: Path, function: str) -> None:
    choose = f"context = ({function}) if (i + 1) % accumulate == 0 else nullcontext"
    assert findings(program(tmp_path, FUNCTIONS.format(choose=choose)), "FSDP403")


@pytest.mark.parametrize("function", CHOSEN.values(), ids=CHOSEN)
def test_a_function_that_is_certainly_called(tmp_path: Path, function: str) -> None:
    choose = f"context = {function}"
    assert findings(program(tmp_path, FUNCTIONS.format(choose=choose)), "FSDP403")
