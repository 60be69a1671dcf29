"""FSDP321: which averages are the parameters themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import copy
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{average}
model(torch.ones(2, 8)).sum().backward()
opt.step()
with torch.no_grad():
"""
LIST = "average = [p.detach() for p in model.parameters()]"
DICT = "average = {n: p.detach() for n, p in model.named_parameters()}"
ZIP = "for a, p in zip(average, model.parameters()): a.lerp_(p, 0.1)"
NAMED = "for n, p in model.named_parameters(): average[n].lerp_(p.detach(), 0.1)"


def found(tmp_path: Path, average: str, update: str) -> bool:
    path = tmp_path / "program.py"
    lines = "".join(f"    {line}\n" for line in update.splitlines())
    path.write_text(HEAD.format(average=average) + lines)
    rule = rule_by_code("FSDP321")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    ("average", "update"),
    [
        (LIST, ZIP),
        (DICT, NAMED),
        ("average = [p for p in model.parameters()]", ZIP),
        ("average = list(model.parameters())", ZIP),
        ("average = dict(model.named_parameters())", NAMED),
        ("average = {n: p.data for n, p in model.named_parameters()}", NAMED),
        ("average = {}\nfor n, p in model.named_parameters(): average[n] = p.detach()", NAMED),
        (LIST, ZIP.replace("lerp_(p, 0.1)", "mul_(0.9).add_(p, alpha=0.1)")),
        (LIST, ZIP.replace("lerp_(p, 0.1)", "mul_(0.9).add_(p.data * 0.1)").replace(" * 0.1", "")),
        (LIST, "torch._foreach_lerp_(average, list(model.parameters()), 0.1)"),
    ],
)
def test_an_average_without_copies(tmp_path: Path, average: str, update: str) -> None:
    assert found(tmp_path, average, update)


@pytest.mark.parametrize(
    ("average", "update"),
    [
        (LIST.replace("detach()", "detach().clone()"), ZIP),
        (LIST.replace("p.detach()", "torch.clone(p)"), ZIP),
        (LIST.replace("p.detach()", "torch.zeros_like(p)"), ZIP),
        (LIST.replace("p.detach()", "torch.empty_like(p).copy_(p)"), ZIP),
        (LIST.replace("p.detach()", "p.detach() + 0"), ZIP),
        (LIST.replace("p.detach()", "p.new_zeros(p.shape)"), ZIP),
        (LIST.replace("detach()", "detach().float()"), ZIP),
        (LIST.replace("detach()", "detach().to('cpu', copy=True)"), ZIP),
        (f"{LIST}\naverage = copy.deepcopy(average)", ZIP),
        (f"{LIST}\naverage = [a.clone() for a in average]", ZIP),
        (f"{DICT}\naverage = copy.deepcopy(average)", NAMED),
        (f"{DICT}\naverage = {{n: a.clone() for n, a in average.items()}}", NAMED),
        (f"{DICT}\nfor n in average: average[n] = average[n].clone()", NAMED),
        (f"{LIST}\naverage = list(map(torch.clone, average))", ZIP),
        ("average = [p.detach() for p in copy.deepcopy(model).parameters()]", ZIP),
        (LIST, "for p in model.parameters(): p.add_(p, alpha=-0.1)"),
        (LIST, "for p in average: p.data.add_(p.data, alpha=-0.1)"),
        (
            LIST,
            "average = [a * 0.9 + p * 0.1 for a, p in zip(average, model.parameters())]\n" + ZIP,
        ),
        (
            DICT,
            "for n, p in model.named_parameters(): average[n] = 0.9 * average[n] + 0.1 * p\n"
            + NAMED,
        ),
        ("weight = model[0].weight", "weight.lerp_(model[1].weight, 0.1)"),
        (LIST, "for a, p in zip(average, model.parameters()): a.lerp_(p.grad, 0.1)"),
    ],
)
def test_copies_and_other_updates(tmp_path: Path, average: str, update: str) -> None:
    assert not found(tmp_path, average, update)
