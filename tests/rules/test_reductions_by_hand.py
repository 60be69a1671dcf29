"""FSDP105 and FSDP113 where the program reduces a tensor between the backward and the step."""

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
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
{shard}
optimizer = torch.optim.AdamW(model.parameters())
for x in batches():
    loss = model(x).mean()
    loss.backward()
    {reduction}
    optimizer.step()
    optimizer.zero_grad()
"""
SHARD = {
    "FSDP105": "fully_shard(model[0])",
    "FSDP113": "fully_shard(model)\nmodel[1] = nn.Linear(8, 2)",
}


def found(folder: Path, code: str, reduction: str) -> bool:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(shard=SHARD[code], reduction=reduction))
    rule = rule_by_code(code)
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize("code", SHARD)
@pytest.mark.parametrize(
    "reduction",
    [
        "pass",
        "dist.all_reduce(loss)",
        "mean = loss.detach() / dist.get_world_size(); dist.all_reduce(mean)",
        "dist.broadcast(torch.ones(1), src=0)",
    ],
)
def test_no_gradient_is_reduced(tmp_path: Path, code: str, reduction: str) -> None:
    assert found(tmp_path, code, reduction)


@pytest.mark.parametrize("code", SHARD)
@pytest.mark.parametrize(
    "reduction",
    [
        "[dist.all_reduce(p.grad) for p in model.parameters()]",
        "dist.all_reduce(model[1].weight.grad)",
        "dist.all_reduce(torch.cat([p.grad.flatten() for p in model[1].parameters()]))",
        "dist.all_reduce(flatten(model))",
        "all_reduce_gradients(model)",
    ],
)
def test_a_gradient_may_be_reduced(tmp_path: Path, code: str, reduction: str) -> None:
    assert not found(tmp_path, code, reduction)
