"""FSDP418 where gradients are set to zero at several places before one step."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """
model = fully_shard(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in batches:
    model(batch).mean().backward()
    {first}
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    {second}
    optimizer.step()
    optimizer.zero_grad()
"""
ALWAYS = "optimizer.zero_grad()"
SOMETIMES = "if not torch.isfinite(norm): optimizer.zero_grad()"


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (ALWAYS, SOMETIMES, True),
        (ALWAYS, "pass", True),
        ("pass", ALWAYS, True),
        ("pass", SOMETIMES, False),
        ("pass", "pass", False),
    ],
)
def test_a_zeroing_that_always_happens_is_found_beside_another(
    tmp_path: Path, first: str, second: str, found: bool
) -> None:
    text = PROGRAM.format(first=first, second=second)
    codes = [one.rule.code for one in findings(program(tmp_path, text), "FSDP418")]
    assert codes == ["FSDP418"] * found
