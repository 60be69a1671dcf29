"""Errors that certainly end a program."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

HEAD = """\
import contextlib
import os
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["RANK"])


def fail(name):
    {body}


model = nn.Linear(8, 8)
"""
FAIL = 'raise ValueError("unknown name: " + name)'
CALLS = {
    "fail('a')": True,
    "fail('a') or model": True,
    "try:\n    fail('a')\nexcept ValueError:\n    pass": False,
    "with contextlib.suppress(ValueError):\n    fail('a')": False,
    "if rank == 0:\n    fail('a')": False,
    "for name in os.listdir('names'):\n    fail(name)": False,
    "for name in os.listdir('names'):\n    if name == 'a':\n        raise ValueError(name)": False,
    "raise ValueError('never')": True,
    "if os.path.exists('a'):\n    raise ValueError('a')": False,
    "atexit.register(fail)": False,
}


@pytest.mark.parametrize("call", CALLS)
def test_an_error_ends_the_program_unless_something_catches_it(tmp_path: Path, call: str) -> None:
    """The run goes on after it, so that it shows more."""
    head = HEAD.format(body=FAIL)
    (trace,) = program(tmp_path, f"{call}\nfully_shard(model)\n", header=head).traces
    assert (trace.fails_at is not None) is CALLS[call]
    assert trace.events


@pytest.mark.parametrize("body", ["return None", "os._exit(0)", "print(name)"])
def test_a_function_that_returns_is_no_failure(tmp_path: Path, body: str) -> None:
    head = HEAD.format(body=body)
    (trace,) = program(tmp_path, "fail('a')\nfully_shard(model)\n", header=head).traces
    assert trace.fails_at is None
