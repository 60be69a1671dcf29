"""Tests that ask a model for a method: rules about a missing method report nothing behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.rules.fsdp401_no_sync_on_fsdp2 import NoSyncOnFsdp2

PROGRAM = """\
import torch
import zoo
from torch import nn
from torch.distributed.fsdp import fully_shard


def asks(model, name):
    return hasattr(model, name)


model = zoo.build()
fully_shard(model)
name = "no_sync"
can_wait = hasattr(model, "no_sync")
other = hasattr(model, "compile")
for step in range(4):
    {test}
        with model.no_sync():
            model(torch.ones(2, 4)).sum().backward()
"""
TESTS = {
    "if True:": True,
    'if hasattr(model, "no_sync"):': False,
    "if hasattr(model, name):": False,
    'if getattr(model, "no_sync", None) is not None:': False,
    'if step % 2 and callable(getattr(model, "no_sync", None)):': False,
    "if can_wait:": False,
    'if asks(model, "no_sync"):': False,
    "if other:": True,
    'if hasattr(model, "no_sync_at_all"):': True,
}


@pytest.mark.parametrize("test", TESTS)
def test_a_method_behind_a_test(test: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM.format(test=test))
    assert bool(check(load([file]), [NoSyncOnFsdp2()])) is TESTS[test]
