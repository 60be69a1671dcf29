"""Meshes that are worked out while a program runs, before and after on four ranks of two machines."""

from __future__ import annotations

from pathlib import Path

from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

HEAD = """\
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.last = nn.Linear(5, 3)
        self.register_buffer("scale", torch.rand(1))

    def forward(self, x):
        return self.last(self.first(x).relu()) * self.scale


def train(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(2):
        loss = model(torch.randn(2, 6, generator=generator).cuda()).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(round(loss.item(), 7))
    return losses



dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
"""

GROUPS = """
shards = [dist.new_group([0, 2]), dist.new_group([1, 3])]
replicas = [dist.new_group([0, 1]), dist.new_group([2, 3])]
for kind in ("FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "NO_SHARD"):
    torch.manual_seed(dist.get_rank())
    group = shards[dist.get_rank() % 2]
    if "HYBRID" in kind:
        group = (group, replicas[dist.get_rank() // 2])
    for given in (group, None):
        net = Net()
        net.first.weight.requires_grad_(False)
        frozen = [p for p in net.parameters() if not p.requires_grad]
        model = FSDP(
            net,
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
            process_group=given,
            ignored_states=frozen,
            sharding_strategy=ShardingStrategy[kind],
            device_id=torch.cuda.current_device(),
            sync_module_states=True,
            use_orig_params=True,
        )
        print(dist.get_rank(), kind, train(model))
dist.destroy_process_group()
"""

MESHES = """
for kind in ("FULL_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "NO_SHARD"):
    for mesh in (None, init_device_mesh("cuda", (4,))):
        if mesh is not None and "HYBRID" in kind:
            continue
        torch.manual_seed(0)
        model = FSDP(
            Net(),
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
            device_mesh=mesh,
            sharding_strategy=ShardingStrategy[kind],
            device_id=torch.cuda.current_device(),
            use_orig_params=True,
        )
        print(dist.get_rank(), kind, train(model))
dist.destroy_process_group()
"""


def outputs(program: str, tmp_path: Path, ranks: TwoRanks) -> tuple[list[str], list[str]]:
    """What the ranks print, before and after."""
    path = tmp_path / "train.py"
    path.write_text(program, encoding="utf-8")
    result = fix(Workspace([path]), [rule() for rule in all_rules()])
    assert "FullyShardedDataParallel" not in result.texts[path]
    runs = []
    for text in (program, result.texts[path]):
        outcome = ranks.run(text, world=4, timeout=600, env={"LOCAL_WORLD_SIZE": "2"})
        assert outcome.status == "ok", str(outcome)
        runs.append(sorted(outcome.stdout.splitlines()))
    return runs[0], runs[1]


def test_process_groups_of_every_strategy(tmp_path: Path, two_ranks: TwoRanks) -> None:
    before, after = outputs(HEAD + GROUPS, tmp_path, two_ranks)
    assert len(before) == 40
    assert before == after


def test_a_mesh_that_may_be_none(tmp_path: Path, two_ranks: TwoRanks) -> None:
    before, after = outputs(HEAD + MESHES, tmp_path, two_ranks)
    assert len(before) == 24
    assert before == after
