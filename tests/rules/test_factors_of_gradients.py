"""Factors of gradients: a number of each rank's own, and elements of each rank's part (FSDP405)."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEADER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
loss = model(torch.randn(4, 8)).sum()
loss.backward()
keep = (torch.arange(8) % 3 != 0).float()
for p in model.parameters():
    grad = p.grad.to_local()
    rows = grad.shape[0]
"""


@pytest.mark.parametrize(
    "factor",
    [
        "1 / grad.norm()",
        "min(1.0, 1.0 / grad.norm(2).item())",
        "torch.clamp(1.0 / (torch.linalg.vector_norm(grad) + 1e-6), max=1.0)",
        "(grad.abs().max() + 1e-6).reciprocal()",
        "1 / (grad.pow(2).sum() ** 0.5 + 1e-6)",
        "1 / torch.nn.utils.get_total_norm([q.grad.to_local() for q in model.parameters()])",
        "1 / p.grad.norm().to_local()",
        "loss.item()",
        "loss.detach()",
        "1 / float(grad.norm())",
        "1 / torch.stack([q.grad.to_local().norm() for q in model.parameters()]).norm()",
    ],
)
def test_a_number_of_each_rank(tmp_path: Path, factor: str) -> None:
    found = program(tmp_path, f"    grad.mul_({factor})\noptimizer.step()\n", header=HEADER)
    assert len(findings(found, "FSDP405")) == 1


@pytest.mark.parametrize(
    "factor",
    [
        "keep[rank * rows : rank * rows + rows]",
        "keep[rank * rows : rank * rows + rows][:, None]",
        "keep[rank * rows :][:rows].unsqueeze(1)",
        "keep.narrow(0, rank * rows, rows)",
        "torch.tensor([float(i % 3 != 0) for i in range(rank * rows, (rank + 1) * rows)])",
        "(grad.abs() > 1e-3)",
        "(grad.abs() > 1e-3).float()",
        "torch.sign(grad)",
        "(torch.rand_like(grad) > 0.5)",
        "1 / grad.norm(dim=-1, keepdim=True)",
        "1 / torch.linalg.vector_norm(grad, dim=-1, keepdim=True)",
        "0.5",
    ],
)
def test_elements_for_the_part_of_each_rank(tmp_path: Path, factor: str) -> None:
    found = program(tmp_path, f"    grad.mul_({factor})\noptimizer.step()\n", header=HEADER)
    assert findings(found, "FSDP405") == []
