"""FSDP150: numbers of heads in views of the columns of one rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CODE = """
from dataclasses import dataclass
import torch.nn.functional as F
from elsewhere import k
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


@dataclass
class Config:
    dim: int = 16
    parts: int = 4
    local_heads: int = 4


def attend(one, two):
    one = one.transpose(1, 2)
    return F.scaled_dot_product_attention(one, two, two)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.count = c, {heads}
        self.query = nn.Linear(c.dim, c.dim)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.query(x)
        q = {view}
        return {use}


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
model = Attention(load(Config))
{plan}
fully_shard(model, mesh=mesh["dp"])
{after}
for x in batches():
    model(x).sum().backward()
"""
PLAN = "parallelize_module(model, mesh['tp'], {'query': ColwiseParallel()})"
VIEW = "q.view(b, n, self.count, -1)"
ATTENTION = "F.scaled_dot_product_attention(q.transpose(1, 2), k, k)"


def _found(tmp_path: Path, **parts: str) -> bool:
    given = {"heads": "c.parts", "view": VIEW, "use": ATTENTION, "plan": PLAN, "after": "", **parts}
    code = CODE.format(**given).replace("load(Config)", "Config(**settings())")
    return bool(findings(program(tmp_path, code), "FSDP150"))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"view": "q.reshape(b, n, self.count, -1)"},
        {"view": "q.view((b, n, self.count, -1))"},
        {"view": "q.view(b, n, self.c.parts, -1)"},
        {"view": "q.to(x.dtype).view(b * n, self.count, -1)"},
        {"use": "F.scaled_dot_product_attention(query=k, key=q, value=k)"},
        {"use": "attend(q, k)"},
        {"use": "(q.transpose(1, 2) @ q.permute(0, 2, 3, 1)).softmax(-1)"},
        {"use": "torch.matmul(q.transpose(1, 2), q.permute(0, 2, 3, 1))"},
        {"use": "torch.einsum('bqhd,bkhd->bhqk', q, q)"},
        {"use": "F.scaled_dot_product_attention(q * k + q * k, k, k)"},
    ],
    ids=str,
)
def test_all_heads_are_found(tmp_path: Path, parts: dict[str, str]) -> None:
    assert _found(tmp_path, **parts)


@pytest.mark.parametrize(
    "parts",
    [
        {"use": "q"},
        {"use": "q.mean(-1)"},
        {"use": "q @ k"},
        {"use": "torch.einsum('bnhd,hde->bnhe', q, k)"},
        {"view": "q.view(b, n, -1, 4)"},
        {"view": "q.view(b, n, -1)"},
        {"view": "q.view(b, -1, self.c.dim)"},
        {"heads": "c.parts // 2"},
        {"heads": "c.local_heads"},
        {"heads": "c.parts // dist.get_world_size()"},
        {"heads": "split(c.parts)"},
        {"after": "model.count = model.count // mesh['tp'].size()"},
        {"after": "model.count //= 2"},
        {"plan": ""},
        {"plan": PLAN.replace("ColwiseParallel()", "ColwiseParallel(use_local_output=False)")},
    ],
    ids=str,
)
def test_heads_of_the_rank_are_fine(tmp_path: Path, parts: dict[str, str]) -> None:
    assert not _found(tmp_path, **parts)
