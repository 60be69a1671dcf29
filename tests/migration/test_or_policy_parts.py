"""Parts of `_or_policy` that are chosen by branches, or have the name of their function."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """\
def make(kind):
    def large(module):
        return isinstance(module, nn.Linear)
    if kind == "a":
        blocks = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    else:
        blocks = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Masked))
    large = functools.partial(lambda_auto_wrap_policy, lambda_fn=large)
    return functools.partial(_or_policy, policies=[blocks, large])


model = FSDP(Net(), auto_wrap_policy=make(os.environ["KIND"]))
"""
AFTER = """\
def make(kind):
    def large(module):
        return isinstance(module, nn.Linear)
    if kind == "a":
        blocks = lambda module: isinstance(module, Block)
    else:
        blocks = lambda module: isinstance(module, Masked)
    return lambda module: blocks(module) or large(module)


model = Net()
should_shard = make(os.environ["KIND"])
for submodule in reversed(list(model.modules())[1:]):
    if should_shard(submodule):
        fully_shard(submodule)
fully_shard(model)
"""


def test_each_branch_gives_a_test(tmp_path: Path) -> None:
    assert migrated(tmp_path, PROGRAM).strip() == AFTER.strip()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Masked))",
            "functools.partial(size_based_auto_wrap_policy, min_num_params=10)",
        ),
        (
            "functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Masked))",
            "unknown(kind)",
        ),
        ("    return", "    print(large(nn.Linear(1, 1)))\n    return"),
    ],
)
def test_other_parts_block(old: str, new: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, PROGRAM.replace(old, new))
    assert found.blockers


RUN = """\
import functools
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import (
    _or_policy, lambda_auto_wrap_policy, transformer_auto_wrap_policy,
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


class Masked(Block):
    pass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.blocks = nn.Sequential(Block(), Masked(), Block())

    def forward(self, x):
        return self.blocks(self.norm(self.first(x)))


dist.init_process_group("gloo")
os.environ["KIND"] = "b"
torch.manual_seed(0)


MAKE

print("units", sum(isinstance(module, FSDP) for module in model.modules()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.full((2, 8), float(step + dist.get_rank()))).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", round(loss.item(), 5))
dist.destroy_process_group()
"""


def test_the_units_are_the_same(tmp_path: Path, two_ranks: TwoRanks) -> None:
    device = 'Net(), device_id=torch.device("cpu"), '
    before = RUN.replace("MAKE", PROGRAM.replace("Net(), ", device))
    path = tmp_path / "train.py"
    path.write_text(before, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in after
    old, new = two_ranks.run(before), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert "units 6" in old.stdout
    assert new.stdout == old.stdout
