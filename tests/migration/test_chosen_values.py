"""Models and functions that an unknown name chooses: the migration takes no choice for certain.

A choice migrates like the `if` and `elif` that say the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.migration.plan import Plan
from fsdplint.migration.planner import plans_of

HEAD = """\
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)


parser = argparse.ArgumentParser()
parser.add_argument("--name")
args = parser.parse_args()
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
"""
DEFINITIONS = {
    "Small": """\
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x):
        return self.blocks(x)
""",
    "Large": """\
class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(self.blocks(x))
""",
    "whole": """\
def whole(model):
    return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
""",
    "hybrid": """\
def hybrid(model):
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        use_orig_params=True,
    )
""",
    "replicated": """\
def replicated(model):
    return DDP(model)
""",
    "plain": """\
def plain(model):
    return model
""",
}
CHOSEN = """\
VALUES = {{"a": {one}, "b": {two}}}
value = VALUES[args.name]
"""
TESTED = """\
if args.name == "a":
    value = {one}
else:
    value = {two}
"""
MODELS = "model = FSDP(value(), use_orig_params=True)\n"
WRAPS = "model = value(Small())\n"
USES = {
    "train": "optimizer = torch.optim.Adam(model.parameters())\n"
    "model(torch.randn(2, 8)).sum().backward()\noptimizer.step()\n",
    "clip": "model.clip_grad_norm_(1.0)\n",
    "state": "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig()):\n"
    "    state = model.state_dict()\n",
    "no_sync": "with model.no_sync():\n    model(torch.randn(2, 8)).sum().backward()\n",
    "inner": "print(model.module.blocks)\n",
}
PAIRS = [
    ("Small", "Large", MODELS),
    ("whole", "hybrid", WRAPS),
    ("whole", "replicated", WRAPS),
    ("replicated", "whole", WRAPS),
    ("plain", "whole", WRAPS),
]


def plan_of(folder: Path, text: str) -> Plan:
    folder.mkdir()
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    (found,) = plans_of(load([path]))
    return found


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("one", "two", "model"), PAIRS)
def test_a_choice_migrates_like_a_test(
    tmp_path: Path, one: str, two: str, model: str, use: str
) -> None:
    definitions = "\n\n".join(DEFINITIONS[name] for name in dict.fromkeys(["Small", one, two]))
    plans = [
        plan_of(
            tmp_path / name,
            f"{HEAD}\n\n{definitions}\n\n{form.format(one=one, two=two)}{model}{USES[use]}",
        )
        for name, form in (("chosen", CHOSEN), ("tested", TESTED))
    ]
    chosen, tested = ([blocker.reason for blocker in plan.blockers] for plan in plans)
    assert chosen == tested
    after = [sorted(edit.text for edit in plan.edits) for plan in plans]
    assert after[0] == after[1]
