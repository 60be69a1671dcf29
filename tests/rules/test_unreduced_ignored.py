"""FSDP710 without a run: ignored modules that each rank trains for itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_refused_parameters import found

PROGRAM = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(16, 4), nn.Embedding(16, 4)])
        self.head = nn.Linear(4, 1)

    def forward(self, rows):
        return self.head(sum(table(rows) for table in self.tables))

{seed}
net = Ranker()
{before}
model = {shard}
optimizer = torch.optim.Adam({trained})
for epoch in range(2):
    for rows in torch.randint(16, (8, 4)):
        loss = model(rows).square().mean()
        loss.backward()
        {after}
        optimizer.step()
        optimizer.zero_grad()
    {epoch}
{end}
dist.all_reduce(spread, dist.ReduceOp.MAX)
"""
USUAL = {
    "seed": "torch.manual_seed(0)",
    "before": "pass",
    "shard": "FSDP(net, ignored_modules=[net.tables])",
    "trained": "net.tables.parameters()",
    "after": "pass",
    "epoch": "pass",
    "end": "spread = net.tables[0].weight.detach().clone()",
}


def messages(folder: Path, **parts: str) -> list[str]:
    return found(folder, "FSDP710", PROGRAM.format(**{**USUAL, **parts}))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"shard": "FSDP(net, ignored_states=[net.tables])"},
        {"shard": "FSDP(net, ignored_modules=list(net.tables))"},
        {"shard": "FSDP(net, ignored_states=list(net.tables.parameters()))"},
        {"shard": "fully_shard(net, ignored_params=set(net.tables.parameters()))"},
        {"trained": "model.parameters()", "shard": "FSDP(net, None, ignored_modules=[net.tables])"},
        {"after": "dist.all_reduce(loss)"},
        {
            "seed": "torch.manual_seed(dist.get_rank())",
            "before": "for p in net.parameters(): dist.broadcast(p.data, src=0)",
        },
        {
            "seed": "torch.manual_seed(dist.get_rank())",
            "before": "[dist.broadcast(p.detach(), 0) for p in net.tables.parameters()]",
        },
        {
            "epoch": "[p.data.clamp_(-1, 1) for p in net.tables.parameters()]",
            "end": "spread = loss.detach()",
        },
    ],
)
def test_trained_tables(tmp_path: Path, parts: dict[str, str]) -> None:
    assert len(messages(tmp_path, **parts)) == 1


@pytest.mark.parametrize(
    "parts",
    [
        {"shard": "FSDP(net)"},
        {"before": "net.tables.requires_grad_(False)"},
        {"trained": "net.head.parameters()"},
        {"after": "[dist.all_reduce(p.grad) for p in net.tables.parameters()]"},
        {"after": "flat = torch.cat([p.grad for p in net.parameters()]); dist.all_reduce(flat)"},
        {"after": "from library import reduce; reduce(net.tables)"},
        {"after": "from library import reduce; reduce(model)"},
        {"before": "net.tables[0].weight.register_hook(print)"},
        {"before": "other = nn.parallel.DistributedDataParallel(net.tables)"},
        {"epoch": "[dist.all_reduce(p.data) for p in net.tables.parameters()]"},
        {"epoch": "dist.all_to_all(rows, rows)"},
        {"seed": "torch.manual_seed(dist.get_rank())"},
        {"seed": "pass"},
        {"epoch": "[p.data.clamp_(-1, 1) for p in net.tables.parameters()]"},
        {
            "seed": "torch.manual_seed(dist.get_rank())",
            "before": "for p in net.head.parameters(): dist.broadcast(p.data, src=0)",
        },
        {
            "seed": "torch.manual_seed(dist.get_rank())",
            "before": "for p in net.parameters(): dist.broadcast(p.data, src=0)\n"
            "nn.init.constant_(net.tables[0].weight, dist.get_rank())",
        },
        {"before": "nn.init.constant_(net.tables[0].weight, dist.get_rank())"},
        {"shard": "FSDP(net, ignored_modules=[m for m in net.children() if unknown(m)])"},
    ],
)
def test_programs_that_may_be_right(tmp_path: Path, parts: dict[str, str]) -> None:
    assert messages(tmp_path, **parts) == []


GROUPS = """
bags, others, heads = [], [], []
for name, p in model.named_parameters():
    bag = bags if "tables" in name else others if "head" not in name else heads
    bag.append(p)
"""


def grouped(folder: Path, groups: str) -> list[str]:
    shard = "fully_shard(net, ignored_params=set(net.tables.parameters()))" + GROUPS
    return messages(folder, shard=shard, trained=groups)


def test_groups_that_tests_select(tmp_path: Path) -> None:
    """Tests of names put the ignored parameters into one of the groups, or into none."""
    every = "[{'params': bags}, {'params': others}, {'params': heads}]"
    assert len(grouped(tmp_path, every)) == 1
    assert len(grouped(tmp_path, "[{'params': bags, 'lr': 0.1}, {'params': heads}]")) == 1
    assert grouped(tmp_path, "[{'params': heads}, {'params': others}]") == []


def test_a_module_that_two_shardings_ignore_is_reported_once(tmp_path: Path) -> None:
    shard = "fully_shard(nn.Sequential(fully_shard(net, ignored_params=bags)), ignored_params=bags)"
    before = "bags = set(net.tables.parameters())"
    assert len(messages(tmp_path, shard=shard, before=before)) == 1
