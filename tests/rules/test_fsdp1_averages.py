"""FSDP307 on averages of the weights of a model that FSDP1 shards."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import copy
import torch
import torch.distributed as dist
from collections import OrderedDict
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy


@torch.no_grad()
def update(average, model):
    {update}


dist.init_process_group("gloo")
plain = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
average = copy.deepcopy(plain).requires_grad_(False)
model = FSDP(plain, {options})
{wrap}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in range(4):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    update(average, model)
"""
PAIRS = """\
for one, other in zip(average.parameters(), model.parameters()):
        one.mul_(0.9).add_(other.data, alpha=0.1)"""
UPDATES = [
    PAIRS,
    "for one, other in zip(average.parameters(), model.parameters()):\n"
    "        one.lerp_(other, 0.1)",
    "held = OrderedDict(average.named_parameters())\n"
    "    for name, other in model.named_parameters():\n"
    "        held[name].mul_(0.9).add_(other.data, alpha=0.1)",
]


def found(
    tmp_path: Path, update: str, options: str = "use_orig_params=True", wrap: str = ""
) -> int:
    file = tmp_path / "main.py"
    file.write_text(PROGRAM.format(update=update, options=options, wrap=wrap))
    rule = rule_by_code("FSDP307")
    assert rule is not None
    return len(check(load([file]), [rule()]))


@pytest.mark.parametrize("update", UPDATES)
def test_a_plain_copy_gets_flat_parts(tmp_path: Path, update: str) -> None:
    assert found(tmp_path, update) == 1


@pytest.mark.parametrize("update", UPDATES)
def test_both_are_wrapped(tmp_path: Path, update: str) -> None:
    assert found(tmp_path, update, wrap="average = FSDP(average, use_orig_params=True)") == 0


OPTIONS = [
    "use_orig_params=unknown()",
    "use_orig_params=True, sharding_strategy=ShardingStrategy.NO_SHARD",
    "use_orig_params=True, ignored_modules=[plain[0]]",
    "**unknown()",
]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_parameters_may_be_whole(tmp_path: Path, options: str) -> None:
    assert found(tmp_path, PAIRS, options) == 0


def test_the_parameters_are_gathered(tmp_path: Path) -> None:
    body = f"with FSDP.summon_full_params(model):\n        {PAIRS}".replace(
        "\n        one", "\n            one"
    )
    assert found(tmp_path, body) == 0
