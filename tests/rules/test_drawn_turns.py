"""FSDP501 in loops of as many turns as each rank draws for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from tqdm import tqdm


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def unroll(model, x, count):
    for _ in range(count):
        x = model(x)
    return x


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = fully_shard(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
set_seed({seed})
for step in range(10):
    count = {count}
    {agree}
    x = torch.randn(2, 4)
    {loop}
    x.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
USUAL = {
    "seed": "1 + rank",
    "count": "torch.randint(1, 5, (1,)).item()",
    "agree": "pass",
    "loop": "for _ in range(count):\n        x = model(x)",
}
IN_FUNCTION = "x = unroll(model, x, count)"


def found(tmp_path: Path, **parts: str) -> int:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(**{**USUAL, **parts}))
    rule = rule_by_code("FSDP501")
    assert rule is not None
    return len(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"count": "random.randint(1, 4)"},
        {"count": "int(np.random.randint(1, 5))"},
        {"count": "random.choice([1, 2, 4])"},
        {"count": "4 * torch.randint(1, 5, (1,)).item()"},
        {"count": "torch.randint(1, 5, (1,))", "agree": "count = count.item()"},
        {"count": "torch.randint(1, 5, (1,))", "agree": "count = int(count)"},
        {"loop": "for turn in range(0, count):\n        x = model(x)"},
        {"loop": IN_FUNCTION},
        {"loop": "turns = range(count)\n    for _ in turns:\n        x = model(x)"},
        {"loop": "for _ in tqdm(range(count)):\n        x = model(x)"},
        {"loop": "for _ in range(count):\n        dist.all_reduce(x)"},
    ],
)
def test_the_ranks_make_other_numbers_of_turns(tmp_path: Path, parts: dict[str, str]) -> None:
    assert found(tmp_path, **parts) == 1
    assert found(tmp_path, **{**parts, "seed": "1"}) == 0


@pytest.mark.parametrize("loop", [USUAL["loop"], IN_FUNCTION])
@pytest.mark.parametrize(
    "parts",
    [
        {
            "agree": "sent = torch.tensor(count)\n    dist.broadcast(sent, 0)\n    count = sent.item()"
        },
        {
            "count": "torch.randint(1, 5, (1,))",
            "agree": "dist.broadcast(count, src=0)\n    count = count.item()",
        },
        {
            "count": "torch.randint(1, 5, (1,))",
            "agree": "dist.all_reduce(count, op=dist.ReduceOp.MAX)\n    count = count.item()",
        },
        {"agree": "sent = [count]\n    dist.broadcast_object_list(sent)\n    count = sent[0]"},
        {"count": "torch.randint(1, 5, (1,), generator=torch.Generator().manual_seed(0)).item()"},
        {"count": "4"},
        {"count": "limit(step)"},
    ],
)
def test_the_ranks_agree(tmp_path: Path, loop: str, parts: dict[str, str]) -> None:
    assert found(tmp_path, loop=loop, **parts) == 0


@pytest.mark.parametrize(
    "loop",
    [
        "for _ in range(count):\n        x = x + 1",
        "for _ in range(4):\n        x = model(x)",
        "for _ in range(4):\n        x = model(x * count)",
    ],
)
def test_no_collective_depends_on_it(tmp_path: Path, loop: str) -> None:
    assert found(tmp_path, loop=loop) == 0
