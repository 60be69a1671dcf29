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


CLIPS = """
def clip(parameters, limit):
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.linalg.norm(torch.stack([torch.linalg.norm(g) for g in gradients]))
    if norm > limit:
        for g in gradients:
            {change}

model = fully_shard(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in batches:
    model(batch).mean().backward()
    optimizer.zero_grad()
    clip(model.parameters(), 1.0)
    optimizer.step()
"""
WHOLE = CLIPS.replace("torch.linalg.norm(g) for", "g.full_tensor().norm() for").replace(
    "gradients]))", "gradients])).item()"
)
IN_LOOP = """
model = fully_shard(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in batches:
    model(batch).mean().backward()
    optimizer.zero_grad()
    total = 0.0
    for p in model.parameters():
        total += p.grad.norm() ** 2
    for p in model.parameters():
        {change}
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("text", "change", "found"),
    [
        (CLIPS, "g.mul_(limit / norm)", True),
        (CLIPS, "g.detach().mul_(limit / norm)", True),
        (CLIPS, "g *= limit / norm", True),
        (CLIPS, "g.add_(torch.randn_like(g))", False),
        (CLIPS, "g += 1", False),
        (CLIPS, "g.copy_(own)", False),
        (CLIPS, "torch.distributed.broadcast(g, 0)", False),
        (CLIPS, "torch.randn(g.shape, out=g)", False),
        (CLIPS, "fill(g)", False),
        (WHOLE, "g.mul_(limit / norm)", True),
        (WHOLE, "g.add_(1.0)", False),
        (WHOLE, "norm.backward()", False),
        (IN_LOOP, "p.grad *= 1 / total", True),
        (IN_LOOP, "p.grad.div_(total)", True),
        (IN_LOOP, "p.grad = noise(p)", False),
        (IN_LOOP, "p.grad[0] = 1.0", False),
        (IN_LOOP, "p.grad.data = own", False),
    ],
)
def test_a_clipping_of_the_program_makes_no_gradients(
    tmp_path: Path, text: str, change: str, found: bool
) -> None:
    codes = findings(program(tmp_path, text.format(change=change)), "FSDP418")
    assert [one.rule.code for one in codes] == ["FSDP418"] * found
