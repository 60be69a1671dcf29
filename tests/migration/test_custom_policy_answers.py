"""CustomPolicy whose function returns dicts that other functions make, or a variable."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

HELPERS = """\
from torch.distributed.fsdp.wrap import CustomPolicy


def small_kwargs():
    return {{"sharding_strategy": ShardingStrategy.FULL_SHARD, "use_orig_params": True}}


def block_kwargs(reshard):
    if reshard:
        return {{}}
    return dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


def make(reshard):
    def choose(module):
        if isinstance(module, nn.Linear):
            return small_kwargs()
        if isinstance(module, Block):
            {answer}
        return False

    return CustomPolicy(choose)


model = FSDP(Net(), auto_wrap_policy=make(bool(os.environ.get("RESHARD"))))
"""
ANSWERS = {
    "return block_kwargs(reshard)": "return block_kwargs(reshard)",
    "return block_kwargs(reshard) if reshard else True": (
        "return block_kwargs(reshard) if reshard else {}"
    ),
    "kwargs = block_kwargs(reshard)\n            return kwargs if kwargs else True": (
        "kwargs = block_kwargs(reshard)\n            return kwargs if kwargs else {}"
    ),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_functions_give_arguments_of_fully_shard(answer: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, HELPERS.format(answer=answer))
    assert 'def small_kwargs():\n    return {"reshard_after_forward": True}\n' in text
    assert (
        "    if reshard:\n        return None\n"
        '    return {"reshard_after_forward": False}\n' in text
    )
    assert f"            {ANSWERS[answer]}\n        return None\n" in text
    assert "            return small_kwargs()\n" in text


@pytest.mark.parametrize(
    "answer",
    [
        "kwargs = block_kwargs(reshard)\n            kwargs['use_orig_params'] = True"
        "\n            return kwargs",
        "print(block_kwargs(reshard))\n            return block_kwargs(reshard)",
        "kwargs = block_kwargs(reshard)\n            print(len(kwargs))\n            return kwargs",
        "return block_kwargs(reshard) or True",
    ],
)
def test_other_uses_block(answer: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, HELPERS.format(answer=answer))
    assert found.blockers


def test_a_function_with_another_caller_blocks(tmp_path: Path) -> None:
    body = HELPERS.format(answer="return block_kwargs(reshard)")
    found, _ = plan(tmp_path, body + "kwargs = block_kwargs(True)\nprint(kwargs)\n")
    assert found.blockers


def test_a_tested_dict_that_would_be_empty_blocks(tmp_path: Path) -> None:
    body = HELPERS.format(
        answer="kwargs = block_kwargs(reshard)\n            return kwargs if kwargs else True"
    ).replace("sharding_strategy=ShardingStrategy.SHARD_GRAD_OP", "forward_prefetch=True")
    found, _ = plan(tmp_path, body)
    assert found.blockers


PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), nn.LayerNorm(8), Block())
        self.head = nn.Linear(8, 6)

    def forward(self, x):
        return self.head(self.blocks(x))


def block_kwargs(apart):
    if not apart:
        return {}
    return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}


def make(apart):
    def choose(module):
        if isinstance(module, Block):
            return block_kwargs(apart)
        return isinstance(module, nn.LayerNorm)

    return CustomPolicy(choose)


dist.init_process_group("gloo")
for apart in (True, False):
    torch.manual_seed(0)
    model = FSDP(
        Net(), auto_wrap_policy=make(apart), device_id=torch.device("cpu"), use_orig_params=True
    )
    print("units", len(FSDP.fsdp_modules(model)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = model(torch.ones(2, 8) * (1 + dist.get_rank())).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.6f}")
dist.destroy_process_group()
"""


def test_an_empty_dict_wraps_nothing(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in after
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert new.stdout == old.stdout
    assert "units 4" in old.stdout and "units 2" in old.stdout
