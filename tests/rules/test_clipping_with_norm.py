"""FSDP404: `clip_grads_with_norm_` with the norm of a rank's own part."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

dist.init_process_group("gloo")
model = {model}
optimizer = torch.optim.AdamW(model.parameters())
for x in batches():
    model(x).mean().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    total = {norm}
    {reduction}
    clip_grads_with_norm_(model.parameters(), 1.0, total)
    optimizer.step()
"""


def found(folder: Path, **parts: str) -> list[str | None]:
    """The fixes of the findings."""
    path = folder / "program.py"
    texts = {"model": "FSDP(nn.Linear(8, 8))", "norm": "get_total_norm(grads)", "reduction": "pass"}
    path.write_text(PROGRAM.format(**{**texts, **parts}))
    rule = rule_by_code("FSDP404")
    assert rule is not None
    return [one.fix.title if one.fix else None for one in check(load([path]), [rule()])]


@pytest.mark.parametrize(
    "norm", ["get_total_norm(grads)", "torch.stack([g.norm() for g in grads]).norm()"]
)
def test_the_norm_of_the_own_part(tmp_path: Path, norm: str) -> None:
    assert found(tmp_path, norm=norm) == [None]


@pytest.mark.parametrize(
    "parts",
    [
        {"reduction": "total = total ** 2; dist.all_reduce(total); total = total ** 0.5"},
        {"norm": "norm_of_all_ranks(grads)"},
        {"model": "fully_shard(nn.Linear(8, 8))"},
        {"model": "nn.parallel.DistributedDataParallel(nn.Linear(8, 8))"},
    ],
)
def test_another_norm(tmp_path: Path, parts: dict[str, str]) -> None:
    assert found(tmp_path, **parts) == []
