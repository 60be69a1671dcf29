"""Errors that a loop catches around a training step."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

STEP = (
    "class Stop(Exception):\n    pass\nmodel = Net()\nfully_shard(model)\n"
    "for batch in batches():\n    try:\n        model(batch).mean().backward()\n"
    "    except {}:\n        print('next')\n"
)


@pytest.mark.parametrize("error", ["RuntimeError", "Exception", "torch.cuda.OutOfMemoryError"])
def test_an_error_that_comes_on_one_rank(tmp_path: Path, error: str) -> None:
    assert findings(program(tmp_path, STEP.format(error)), "FSDP528")


@pytest.mark.parametrize("error", ["Stop", "(ValueError, Stop)", "ImportError"])
def test_an_error_that_may_come_on_all_ranks(tmp_path: Path, error: str) -> None:
    assert not findings(program(tmp_path, STEP.format(error)), "FSDP528")
