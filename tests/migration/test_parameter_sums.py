"""Sums over parameters that each rank computes of its part, and that `all_reduce` adds up."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import plan
from two_ranks import TwoRanks

REDUCE = "\ndist.all_reduce(total)\n"
ADDED = {
    "a loop": (
        "total = torch.zeros(())\nfor p in model.parameters():\n    total += p.detach().pow(2).sum()",
        "p.detach().pow(2).to_local().sum()",
    ),
    "a norm": (
        "total = sum(p.norm() ** 2 for p in model.parameters())",
        "p.to_local().norm() ** 2",
    ),
    "a function of torch": (
        "total = sum(torch.sum(p.detach() ** 2) for p in model.parameters())",
        "torch.sum((p.detach() ** 2).to_local())",
    ),
    "two sums": (
        """
        total = torch.zeros(2)
        for old, p in zip(before, model.parameters()):
            total += torch.stack([(old - p.detach()).square().sum(), p.detach().square().sum()])
        """,
        "[(old - p.detach()).square().to_local().sum(), p.detach().square().to_local().sum()]",
    ),
    "a tensor of the number": (
        """
        squares = 0.0
        for p in model.parameters():
            squares += p.norm(2).item() ** 2
        total = torch.tensor([squares])
        """,
        "p.to_local().norm(2).item() ** 2",
    ),
}
PROGRAM = """
model = FSDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
before = [p.detach().clone() for p in model.parameters()]
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize(("sums", "after"), list(ADDED.values()), ids=list(ADDED))
def test_the_parts_of_a_rank_are_added_up(tmp_path: Path, sums: str, after: str) -> None:
    found, text = plan(tmp_path, PROGRAM + textwrap.dedent(sums) + REDUCE)
    assert [one.reason for one in found.blockers] == []
    assert after in " ".join(text.split())


LOOP = ADDED["a loop"][0]
BLOCKED = {
    "no reduction": LOOP + "\nprint(total)\n",
    "the largest value": LOOP + "\ndist.all_reduce(total, op=dist.ReduceOp.MAX)\n",
    "a root before the reduction": LOOP + "\ntotal = total.sqrt()" + REDUCE,
    "a number that is printed, too": LOOP + "\nprint(total)" + REDUCE,
    "a number that the loop prints first": LOOP.replace("    total", "    print(total)\n    total")
    + REDUCE,
    "a norm without a square": ADDED["a norm"][0].replace(" ** 2", "") + REDUCE,
    "a sum of a dimension": LOOP.replace(".sum()", ".sum(0).max()") + REDUCE,
    "a mean": LOOP.replace(".sum()", ".mean()") + REDUCE,
}


@pytest.mark.parametrize("sums", list(BLOCKED.values()), ids=list(BLOCKED))
def test_other_sums_block(tmp_path: Path, sums: str) -> None:
    found, _ = plan(tmp_path, PROGRAM + sums)
    assert any(one.code == "FSDP299-parameter-part" for one in found.blockers)


RUN = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def drift(model, average):
    sums = torch.zeros(2)
    for old, p in zip(average, model.parameters()):
        sums += torch.stack([(old - p.detach()).square().sum(), p.detach().square().sum()])
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).sqrt().item()


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 7), nn.Tanh(), nn.Linear(7, 1))
model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = [p.detach().clone() for p in model.parameters()]
for step in range(3):
    model(torch.full((2, 8), 1.0 + step + dist.get_rank())).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    for old, p in zip(average, model.parameters()):
        old.mul_(0.9).add_(p.detach(), alpha=0.1)
    print(f"{drift(model, average):.4f}")
dist.destroy_process_group()
"""


def test_the_sums_are_those_of_fsdp1(tmp_path: Path, two_ranks: TwoRanks) -> None:
    found, after = plan(tmp_path, RUN, head="")
    assert not found.blockers, [one.reason for one in found.blockers]
    old, new = two_ranks.run(RUN), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old.error}\n{new.error}"
    assert new.stdout == old.stdout
