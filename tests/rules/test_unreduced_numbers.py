"""FSDP443: a number of one rank that is divided by the number of ranks, in the spellings of programs."""

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
world_size = dist.get_world_size()
total, right, rows, losses = torch.zeros(()), 0, 0, []
for x, y in loader:
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    total += loss.detach()
    right += (out.argmax(dim=1) == y).sum().item()
    rows += y.size(0)
    losses.append(loss.item())
{then}
"""
WRONG = [
    'print(f"loss {total.item() / world_size / len(loader):.3f}")',
    'print("loss", total / (world_size * len(loader)))',
    'print("loss {}".format((total / world_size).item()))',
    'print("loss %f" % (total.item() / world_size))',
    "import wandb\nwandb.log({'loss': total.item() / dist.get_world_size()})",
    "mean = loss.item() / world_size\nprint(f'{mean}')",
    "total /= world_size\nprint(total.item())",
    "accuracy = 100 * right / world_size / rows\nprint(accuracy)",
    "accuracy = right / (rows * world_size)\nprint(f'accuracy {accuracy:.1%}')",
    "print(sum(losses) / world_size / len(losses))",
    "mean = total.item() / world_size\ndist.all_reduce(total)\nprint(mean)",
    "total = total.div(world_size)\nprint(total.item())",
    "total.div_(world_size)\nprint(total.item())",
]
RIGHT = [
    "dist.all_reduce(total)\nprint(total.item() / world_size)",
    "total = total / world_size\ndist.all_reduce(total)\nprint(total.item())",
    "total /= world_size\ndist.reduce(total, 0)\nprint(total.item())",
    "print(total.item() / len(loader))",
    "mean = total / world_size\nmean = mean * world_size\nprint(mean.item())",
    "both = torch.stack([total, torch.tensor(float(right))])\ndist.all_reduce(both)\nprint(both[0].item() / world_size)",
    "parts = [torch.zeros(()) for _ in range(world_size)]\ndist.all_gather(parts, total)\nprint(sum(parts).item() / world_size)",
    "mean = total / world_size\nfrom helpers import synchronize\nmean = synchronize(mean)\nprint(mean.item())",
    "mean = total / world_size\nfrom helpers import synchronize\nsynchronize(mean)\nprint(mean.item())",
    "print(10_000 / world_size)",
    "rate = 0.1 * world_size\nprint(rate, 1 / world_size)",
    "import time\nprint(time.time() / world_size)",
]


@pytest.mark.parametrize("then", WRONG)
def test_a_number_that_nothing_reduces(tmp_path: Path, then: str) -> None:
    assert len(findings(program(tmp_path, CODE.format(then=then)), "FSDP443")) == 1


@pytest.mark.parametrize("then", RIGHT)
def test_other_numbers(tmp_path: Path, then: str) -> None:
    assert not findings(program(tmp_path, CODE.format(then=then)), "FSDP443")
