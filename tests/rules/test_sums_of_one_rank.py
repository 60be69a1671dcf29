"""FSDP414 and FSDP501: numbers that `dist.reduce` gives to one rank alone."""

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
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

def evaluate(model, batches):
    total, count = torch.zeros(2), torch.zeros(1)
    with torch.no_grad():
        for batch in batches:
            total[0] += model(batch).mean()
            total[1] += 1
            count += 1
    {reduce}
    return {value}

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = fully_shard(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
best = float("inf")
for epoch in range(3):
    for batch in torch.randn(4, 2, 4):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
    value = evaluate(model, torch.randn(4, 2, 4))
    {use}
"""
MEAN = "(total[0] / total[1]).item()"
SCHEDULED = "scheduler.step(value)"
CHOSEN = """\
if value < best:
        best = value
        options = StateDictOptions(full_state_dict=True)
        state = get_model_state_dict(model, options=options)"""


def found(tmp_path: Path, reduce: str, value: str, use: str) -> set[str]:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(reduce=reduce, value=value, use=use))
    rules = [rule_by_code(code)() for code in ("FSDP414", "FSDP501")]
    return {finding.rule.code for finding in check(load([path]), rules)}


@pytest.mark.parametrize(
    ("reduce", "value", "use", "code"),
    [
        ("dist.reduce(total, 0)", MEAN, SCHEDULED, "FSDP414"),
        ("dist.reduce(total, dst=0, op=dist.ReduceOp.SUM)", MEAN, CHOSEN, "FSDP501"),
        ("dist.reduce(count, 0)", "float(count)", SCHEDULED, "FSDP414"),
        ("dist.reduce(tensor=total, dst=0)", "total.tolist()[0]", CHOSEN, "FSDP501"),
        (
            "dist.reduce(total, 0)",
            MEAN,
            'optimizer.param_groups[0]["lr"] = 0.1 * value',
            "FSDP414",
        ),
    ],
)
def test_all_ranks_use_the_sum(
    reduce: str, value: str, use: str, code: str, tmp_path: Path
) -> None:
    assert found(tmp_path, reduce, value, use) == {code}


@pytest.mark.parametrize(
    ("reduce", "value", "use"),
    [
        ("dist.all_reduce(total)", MEAN, SCHEDULED),
        ("dist.reduce(total, 0); dist.broadcast(total, 0)", MEAN, CHOSEN),
        ("dist.reduce(total, 0)", MEAN, "print(value)"),
        ("dist.reduce(total, 0)", MEAN, "if rank == 0 and value < best: best = value"),
        ("dist.reduce(count, 0); dist.all_reduce(total)", MEAN, SCHEDULED),
        ("dist.reduce(total.clone(), 0); dist.all_reduce(total)", MEAN, CHOSEN),
    ],
)
def test_one_rank_uses_the_sum(reduce: str, value: str, use: str, tmp_path: Path) -> None:
    assert found(tmp_path, reduce, value, use) == set()
