"""FSDP403 on contexts of accumulation that a function returns under a test of the turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """
import contextlib


def accumulation(model, synchronize):
{body}


model = FSDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = list(samples)
for turn, batch in enumerate(batches, start=1):
    steps = turn % 4 == 0 or turn == len(batches)
    with accumulation(model, synchronize=steps):
        model(batch).mean().backward()
    if steps:
        optimizer.step()
        optimizer.zero_grad()
"""
EARLY = """
    if {test}:
        return contextlib.nullcontext()
    return model.no_sync()
"""
BOTH = """
    if {test}:
        return contextlib.nullcontext()
    else:
        return model.no_sync()
"""
NESTED = """
    if not isinstance(model, FSDP):
        return contextlib.nullcontext()
    if {test}:
        return contextlib.nullcontext()
    return model.no_sync()
"""


@pytest.mark.parametrize("body", [EARLY, BOTH, NESTED])
@pytest.mark.parametrize(
    ("test", "found"),
    [("synchronize", False), ("not synchronize", True)],
)
def test_the_test_of_a_returned_context_decides(
    tmp_path: Path, body: str, test: str, found: bool
) -> None:
    text = PROGRAM.format(body=body.format(test=test))
    codes = [one.rule.code for one in findings(program(tmp_path, text), "FSDP403")]
    assert codes == ["FSDP403"] * found
