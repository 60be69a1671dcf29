"""FSDP528 knows by values whether a loop goes on after the handler of an error in a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import logging
import os
import sys
from sys import exit as leave
from elsewhere import cleanup
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

Ended = StopIteration
bad, halt, logger = [], sys.exit, logging.getLogger(__name__)


class Interrupted(KeyboardInterrupt):
    pass


def finish(text):
    logger.error(text)
    halt(1)


def remember(text):
    bad.append(text)


def at_end(print):
    print(1)


def call(function, *args):
    return function(*args)


def spare(batch):
    return torch.zeros(len(batch))


def fail(text):
    raise RuntimeError(text)


note, say = remember, logger.error
net = fully_shard(nn.Linear(8, 8))
engine = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in torch.randn(4, 2, 8):
    try:
        net(batch).sum().backward()
        engine.step()
        engine.zero_grad()
    except {error}:
        {handler}
"""
GOES_ON = {
    "pass": "pass",
    "print": "print(1)",
    "a list": "bad.append(batch)",
    "a number": "batch = torch.zeros(8)",
    "a function of the program that returns": "batch = spare(batch)",
    "a function of the program": "remember('x')",
    "its variable": "note('x')",
    "a logger by another name": "say('x')",
    "empty_cache": "torch.cuda.empty_cache()",
    "in a with": "with torch.no_grad():\n            engine.zero_grad()",
    "of one rank": "if dist.get_world_size() == 1:\n            raise\n        print(1)",
    "one way": "if len(batch) > 1:\n            raise\n        engine.zero_grad()",
}
LEAVES = {
    "raise": "raise",
    "exit": "sys.exit(1)",
    "exit by another name": "leave(1)",
    "exit in a variable": "halt(1)",
    "abort": "os.abort()",
    "a function that exits": "finish('x')",
    "a function that raises": "fail('x')",
    "code out of sight": "cleanup()",
    "a function that gets the exit": "at_end(halt)",
    "a function that returns what it calls": "call(halt, 1)",
    "the result of code out of sight": "batch = cleanup()",
    "in a with": "with torch.no_grad():\n            sys.exit(1)",
    "in a finally": "try:\n            print(1)\n        finally:\n            os._exit(1)",
    "in a loop": "while True:\n            sys.exit(1)",
    "of several ranks": "if dist.get_world_size() > 1:\n            raise\n        print(1)",
    "both ways": "if len(batch) > 1:\n            raise\n        else:\n            halt(1)",
}


# Programs around the step, with a flag that the handler sets.
FLAGS = {
    "break": ("failed = None", "failed = error", "if failed is not None:\n            break"),
    "raise": ("oops = None", "oops = error", "if oops:\n            raise oops"),
    "exit": ("bad = False", "bad = True", "if bad:\n            finish('x')"),
    "count": ("n = 0", "n += 1", "if n:\n            break"),
    "assertion": ("fine = True", "fine = False", "assert fine"),
    "other way": (
        "go = True",
        "go = False",
        "if go:\n            print(1)\n        else:\n            break",
    ),
    "attribute": ("job.over = False", "job.over = True", "if job.over:\n            break"),
    "method": ("job.over = False", "job.end(error)", "if job.over:\n            break"),
    "finally": (
        "ok = True",
        "ok = False",
        "finally:\n            if not ok:\n                break",
    ),
}
NO_FLAGS = {
    "of no test": ("failed = None", "failed = error", "print(failed)"),
    "message": ("failed = None", "failed = error", "if failed:\n            print(failed)"),
    "step left out": ("ok = True", "ok = False", "if ok:\n            engine.step()"),
    "other flag": ("failed = None", "failed = error", "if batch is None:\n            break"),
}
FLAGGED = """
class Job:
    def end(self, error):
        self.note(error)

    def note(self, error):
        self.over = True


def train(job):
    for batch in torch.randn(4, 2, 8):
        {before}
        try:
            net(batch).sum().backward()
            engine.step()
            engine.zero_grad()
        except ValueError as error:
            {handler}
        {after}


train(Job())
"""


def flagged(tmp_path: Path, before: str, handler: str, after: str) -> int:
    head = PROGRAM.partition("for batch in torch.randn")[0]
    return count(tmp_path, head + FLAGGED.format(before=before, handler=handler, after=after))


@pytest.mark.parametrize("form", FLAGS)
def test_a_flag_that_ends_the_loop(tmp_path: Path, form: str) -> None:
    assert flagged(tmp_path, *FLAGS[form]) == 0


@pytest.mark.parametrize("form", NO_FLAGS)
def test_a_flag_that_does_not_end_the_loop(tmp_path: Path, form: str) -> None:
    assert flagged(tmp_path, *NO_FLAGS[form]) == 1


def findings(tmp_path: Path, handler: str, error: str = "ValueError") -> int:
    return count(tmp_path, PROGRAM.format(handler=handler, error=error))


def count(tmp_path: Path, text: str) -> int:
    path = tmp_path / "program.py"
    path.write_text(text)
    rule = rule_by_code("FSDP528")
    assert rule is not None
    return len(list(check(load([path]), [rule()])))


@pytest.mark.parametrize("form", GOES_ON)
def test_a_handler_after_which_the_loop_goes_on(tmp_path: Path, form: str) -> None:
    assert findings(tmp_path, GOES_ON[form]) == 1


@pytest.mark.parametrize("form", LEAVES)
def test_a_handler_that_may_leave(tmp_path: Path, form: str) -> None:
    assert findings(tmp_path, LEAVES[form]) == 0


@pytest.mark.parametrize(
    "error", ["Ended", "Interrupted", "(ValueError, Ended)", "KeyboardInterrupt", "ImportError"]
)
def test_errors_of_all_ranks(tmp_path: Path, error: str) -> None:
    assert findings(tmp_path, "pass", error) == 0


@pytest.mark.parametrize("error", ["Exception", "(OSError, ValueError)", "torch.OutOfMemoryError"])
def test_errors_of_one_rank(tmp_path: Path, error: str) -> None:
    assert findings(tmp_path, "pass", error) == 1
