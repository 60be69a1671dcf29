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
