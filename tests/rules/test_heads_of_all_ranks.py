"""FSDP150: numbers of heads in views of the columns of one rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CODE = """
from dataclasses import dataclass
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


@dataclass
class Config:
    dim: int = 16
    heads: int = 4
    local_heads: int = 4


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.n_heads = c, {heads}
        self.query = nn.Linear(c.dim, c.dim)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.query(x)
        return {view}


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
VIEW = "q.view(b, n, self.n_heads, -1)"


def _found(tmp_path: Path, **parts: str) -> bool:
    given = {"heads": "c.heads", "view": VIEW, "plan": PLAN, "after": "", **parts}
    code = CODE.format(**given).replace("load(Config)", "Config(**settings())")
    return bool(findings(program(tmp_path, code), "FSDP150"))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"view": "q.reshape(b, n, self.n_heads, -1)"},
        {"view": "q.view((b, n, self.n_heads, -1))"},
        {"view": "q.view(b, n, self.c.heads, -1)"},
        {"view": "q.to(x.dtype).view(b * n, self.n_heads, -1)"},
    ],
    ids=str,
)
def test_all_heads_are_found(tmp_path: Path, parts: dict[str, str]) -> None:
    assert _found(tmp_path, **parts)


@pytest.mark.parametrize(
    "parts",
    [
        {"view": "q.view(b, n, -1, 4)"},
        {"view": "q.view(b, n, -1)"},
        {"view": "q.view(b, -1, self.c.dim)"},
        {"heads": "c.heads // 2"},
        {"heads": "c.local_heads"},
        {"heads": "c.heads // dist.get_world_size()"},
        {"heads": "split(c.heads)"},
        {"after": "model.n_heads = model.n_heads // mesh['tp'].size()"},
        {"after": "model.n_heads //= 2"},
        {"plan": ""},
        {"plan": PLAN.replace("ColwiseParallel()", "ColwiseParallel(use_local_output=False)")},
    ],
    ids=str,
)
def test_heads_of_the_rank_are_fine(tmp_path: Path, parts: dict[str, str]) -> None:
    assert not _found(tmp_path, **parts)
