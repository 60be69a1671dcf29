"""Clipping by the largest gradient, which torch refuses for parameters without a part on some rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan

PROGRAM = """
import math

BOUND = {bound}


def clip(model, norm_type=BOUND):
    model.clip_grad_norm_(1.0, norm_type)


model = FSDP(Net())
model(torch.ones(2, 8)).sum().backward()
"""


@pytest.mark.parametrize("bound", ['float("inf")', "math.inf", "2.0"])
@pytest.mark.parametrize(
    "call", ["clip(model)", "clip(model, BOUND)", "clip(model, norm_type=BOUND)"]
)
def test_a_norm_that_a_parameter_holds(tmp_path: Path, bound: str, call: str) -> None:
    found, _ = plan(tmp_path, PROGRAM.format(bound=bound) + call)
    codes = {one.blocker.code for one in found.blockers}
    assert codes == (set() if bound == "2.0" else {"FSDP204-largest-gradient"})


def test_a_default_that_no_call_uses(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, PROGRAM.format(bound='float("inf")') + "clip(model, 2.0)\n")
    assert not found.blockers
