"""FSDP408: gradients that the program divides by the number of ranks after FSDP has averaged them."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEADER = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

STEPS = 4
dist.init_process_group("gloo")
world = dist.get_world_size()
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """\
for batch in batches():
    {backward}
    {first}
    for p in model.parameters():
        if p.grad is not None:
            {scale}
    optimizer.step()
    optimizer.zero_grad()
"""
BACKWARD = "model(batch).mean().backward()"


def found(folder: Path, scale: str, *, backward: str = BACKWARD, first: str = "pass") -> int:
    body = LOOP.format(scale=scale, backward=backward, first=first)
    return len(findings(program(folder, body, header=HEADER), "FSDP408"))


@pytest.mark.parametrize(
    "scale",
    [
        "p.grad.div_(world)",
        "p.grad.div_(STEPS * world)",
        "p.grad /= dist.get_world_size()",
        "p.grad *= 1.0 / world",
        "p.grad.data.mul_(1 / (STEPS * world))",
        "p.grad.to_local().div_(float(world))",
        "torch._foreach_div_([p.grad], world)",
        "p.grad.div_(settings.steps * int(os.environ['WORLD_SIZE']))",
    ],
)
def test_divided_by_the_number_of_ranks(tmp_path: Path, scale: str) -> None:
    assert found(tmp_path, scale) == 1


@pytest.mark.parametrize(
    ("scale", "first", "backward"),
    [
        ("p.grad.div_(STEPS)", "pass", BACKWARD),
        ("p.grad.mul_(world)", "pass", BACKWARD),
        ("p.grad.div_(len(batch) // world)", "pass", BACKWARD),
        ("p.grad.div_(STEPS * world / world)", "pass", BACKWARD),
        ("p.grad.div_(world + 1)", "pass", BACKWARD),
        ("p.grad.div_(unknown(world))", "pass", BACKWARD),
        ("p.grad.div_(world)", "p.grad.mul_(world)", "p = model[0].weight; " + BACKWARD),
        ("p.grad.div_(world)", "pass", "(model(batch).mean() * world).backward()"),
        ("p.grad.div_(world)", "model.set_gradient_divide_factor(1.0)", BACKWARD),
        ("p.grad.div_(world)", "dist.all_reduce(model[0].weight.grad.to_local())", BACKWARD),
        ("p.data.div_(world)", "pass", BACKWARD),
        ("p.grad.div_(STEPS * factor(world))", "pass", BACKWARD),
    ],
)
def test_other_factors(tmp_path: Path, scale: str, first: str, backward: str) -> None:
    assert found(tmp_path, scale, first=first, backward=backward) == 0


def test_gradients_that_are_not_sharded(tmp_path: Path) -> None:
    text = HEADER.replace("fully_shard(model)\n", "")
    body = LOOP.format(scale="p.grad.div_(world)", backward=BACKWARD, first="pass")
    assert findings(program(tmp_path, body, header=text), "FSDP408") == []
