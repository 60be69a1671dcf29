"""`_or_policy` that combines a policy by size with tests of modules."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

HERE = """\
def build(size):
    by_size = functools.partial(
        size_based_auto_wrap_policy, min_num_params=size, exclude_wrap_modules={nn.ModuleList}
    )
    tables = functools.partial(
        lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, nn.Embedding)
    )
    policy = functools.partial(_or_policy, policies=[tables, by_size])
    return FSDP(Net(), auto_wrap_policy=policy)


model = build(100)
"""


def test_the_helper_that_counts_gets_the_tests(tmp_path: Path) -> None:
    text = migrated(tmp_path, HERE)
    assert "def shard_large_modules(model, min_num_params, test, **kwargs):" in text
    assert "not isinstance(module, nn.ModuleList)" in text
    assert "size, test=lambda module: isinstance(module, nn.Embedding)\n" in text
    assert "by_size" not in text and "tables" not in text


ELSEWHERE = """\
def policy_for(size):
    by_size = functools.partial(size_based_auto_wrap_policy, min_num_params=size)
    blocks = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    return functools.partial(_or_policy, policies=[blocks, by_size])


model = FSDP(Net(), auto_wrap_policy=policy_for(100))
"""


def test_a_function_makes_the_policy(tmp_path: Path) -> None:
    text = migrated(tmp_path, ELSEWHERE)
    assert "test=lambda module: isinstance(module, Block)" in text
    assert "wrap_policy = policy_for(100)\nwrap_policy(model)\nfully_shard(model)" in text
    assert "by_size" not in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[blocks, by_size]", "[blocks, by_size, by_size]"),
        ("[blocks, by_size]", "[unknown(size), by_size]"),
        ("auto_wrap_policy=", "param_init_fn=unknown, auto_wrap_policy="),
    ],
)
def test_other_combinations_block(old: str, new: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, ELSEWHERE.replace(old, new))
    assert found.blockers


PROGRAM = """\
import functools
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import (
    _or_policy, lambda_auto_wrap_policy, size_based_auto_wrap_policy,
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(6, 8)
        self.blocks = nn.Sequential(Block(), nn.LayerNorm(8), Block())
        self.head = nn.Linear(8, 6)

    def forward(self, x):
        return self.head(self.blocks(self.table(x)))


def build(size):
    by_size = functools.partial(size_based_auto_wrap_policy, min_num_params=size)
    small = functools.partial(
        lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, (nn.Embedding, nn.LayerNorm))
    )
    policy = functools.partial(_or_policy, policies=[small, by_size])
    return FSDP(Net(), auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True)


dist.init_process_group("gloo")
for size in (140, 150, 300):
    torch.manual_seed(0)
    model = build(size)
    print("units", size, len(FSDP.fsdp_modules(model)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.arange(6) + dist.get_rank()
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(tokens % 6), tokens % 6)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.6f}")
dist.destroy_process_group()
"""


def test_it_shards_the_same_modules(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in after
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert new.stdout == old.stdout
    assert "units 140 " in old.stdout
