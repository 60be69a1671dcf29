"""FSDP429: a total of all ranks is divided by the tokens that one rank has counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CODE = """
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
data = make_data()
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = fully_shard(nn.Linear(8, 4))
batches = iter(loader)
total, tokens = torch.zeros(1), torch.zeros(1)
for _ in range(10):
    x, y = next(batches)
    loss = F.cross_entropy(model(x), y)
    number = {number}
    total += loss.detach() * number
    tokens += number
dist.all_reduce(total)
{then}
"""
NUMBERS = ["(y != -100).sum()", "y.ne(-100).sum()", "torch.ne(y, -100).sum()", "y.numel()",
           "(y >= 0).sum().to(x.device)", "torch.count_nonzero(y != -100)"]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_tokens_of_one_rank(tmp_path: Path, number: str) -> None:
    shown = 'print(f"loss {(total / tokens).item():.3f}")'
    assert len(findings(program(tmp_path, CODE.format(number=number, then=shown)), "FSDP429")) == 1


@pytest.mark.parametrize(
    "then",
    [
        "dist.all_reduce(tokens)\nprint((total / tokens).item())",
        "print((total / tokens / dist.get_world_size()).item())",
        "print((total / (tokens * dist.get_world_size())).item())",
        "both = torch.cat([total, tokens])\ndist.all_reduce(both)\nprint((both[0] / both[1]).item())",
        "every = tokens.clone()\ndist.all_reduce(every)\nprint((total / every).item())",
        "every = tokens.clone()\ndist.all_reduce(every)\nprint((every / tokens).item())",
        "print(total.item(), tokens.item())",
    ],
)
@pytest.mark.parametrize("number", NUMBERS)
def test_other_quotients(tmp_path: Path, number: str, then: str) -> None:
    assert not findings(program(tmp_path, CODE.format(number=number, then=then)), "FSDP429")


BOTH = """
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
data = make_data()
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = fully_shard(nn.Linear(8, 4))
{begin}
for x, y in loader:
    loss = F.cross_entropy(model(x), y, reduction="sum")
    number = (y != -100).sum()
    {turn}
{after}
"""
REDUCE = "dist.all_reduce(both)"


@pytest.mark.parametrize(
    ("begin", "turn", "after"),
    [
        (
            "both = torch.zeros(2)",
            "both[0] += loss; both[1] += number",
            f"{REDUCE}; print((both[0] / both[1]).item())",
        ),
        (
            "both = torch.zeros(2)",
            "both[0] += loss; both[1] += y.numel()",
            f"{REDUCE}; total, count = both; print(total / count)",
        ),
        (
            "total, count = torch.zeros(1), torch.zeros(1)",
            "total += loss; count += number",
            "for one in (total, count): dist.all_reduce(one)\nprint((total / count).item())",
        ),
        (
            "sums = {'loss': torch.zeros(1), 'count': torch.zeros(1)}",
            "sums['loss'] += loss; sums['count'] += number",
            "for key in sums: dist.all_reduce(sums[key])\nprint(sums['loss'] / sums['count'])",
        ),
        (
            "total, count = 0.0, 0",
            "total += loss.item(); count += number.item()",
            f"both = torch.tensor([total, count]); {REDUCE}; print(both[0] / both[1])",
        ),
        (
            "total, count = 0.0, 0",
            "total += loss.item(); count += number.item()",
            f"both = torch.tensor([total, count]); {REDUCE}\n"
            "total, count = both.tolist()\nprint(total / count)",
        ),
        (
            "total, count = torch.zeros(1), torch.zeros(1)",
            "total += loss; count += number",
            f"both = torch.stack([total, count]); {REDUCE}; print((both[0] / both[1]).item())",
        ),
        (
            "total, count = torch.zeros(1), torch.zeros(1)",
            "total += loss; count += number",
            "dist.all_reduce(total)\ndist.all_reduce(count, group=other)\nprint(total / count)",
        ),
        (
            "total, count = torch.zeros(1), torch.zeros(1)",
            "total += loss; count += number",
            "dist.all_reduce(total); parts = [torch.zeros(1), torch.zeros(1)]\n"
            "dist.all_gather(parts, count); print(total / sum(parts))",
        ),
        (
            "total, count = torch.zeros(1), torch.zeros(1)",
            "total += loss; count += number",
            "dist.all_reduce(total)\nreduce_all(count)\nprint((total / count).item())",
        ),
        (
            "meter = Meter()",
            "meter.update(loss, number)",
            "meter.reduce(); print(meter.mean())",
        ),
    ],
)
def test_sums_that_are_both_reduced(tmp_path: Path, begin: str, turn: str, after: str) -> None:
    meter = """
from elsewhere import other, reduce_all
class Meter:
    def __init__(self):
        self.total, self.count = torch.zeros(1), torch.zeros(1)
    def update(self, loss, number):
        self.total += loss
        self.count += number
    def reduce(self):
        both = torch.cat([self.total, self.count])
        dist.all_reduce(both)
        self.total, self.count = both[0], both[1]
    def mean(self):
        return (self.total / self.count).item()
"""
    lines = meter + BOTH.format(begin=begin, turn=turn, after=after)
    assert not findings(program(tmp_path, lines), "FSDP429")
