"""FSDP425 and FSDP426: frozen models in training mode, and losses of micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import argparse
import copy
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=4)
args = parser.parse_args()


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(context, loss):
        return loss.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient / 4


class Net(nn.Module):
    def __init__(self, dropout={dropout}):
        super().__init__()
        self.layer, self.drop = nn.Linear(8, 4), nn.Dropout(dropout)

    def forward(self, x, y):
        scores = self.drop(self.layer(x))
        return scores, F.cross_entropy(scores, y)


model = Net()
teacher = copy.deepcopy(model)
{teacher}
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for step, (x, y) in enumerate(zip(torch.randn(8, 2, 8), torch.ones(8, 2).long())):
    last = {last}
    model.set_requires_gradient_sync(last)
    scores, loss = model(x, y)
    with torch.no_grad():
        target, _ = teacher(x, y)
    {loss}
    {backward}
    if last:
        {scale}
        optimizer.step()
        optimizer.zero_grad()
        {after}
"""
USUAL = {
    "dropout": "0.1",
    "teacher": "teacher.requires_grad_(False).eval()",
    "last": "(step + 1) % args.accumulate == 0",
    "loss": "pass",
    "backward": "loss.backward()",
    "scale": "pass",
    "after": "pass",
}


def found(tmp_path: Path, code: str, parts: dict[str, str]) -> bool:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(**USUAL | parts))
    rule = rule_by_code(code)
    assert rule is not None
    return bool(list(check(load([path]), [rule()])))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"loss": "loss = F.mse_loss(scores, target)"},
        {"loss": "loss = nn.CrossEntropyLoss()(scores, y)"},
        {"loss": "loss = (scores - target).square().mean()"},
        {"loss": "loss = loss + F.mse_loss(scores, target)"},
        {"loss": 'loss = F.cross_entropy(scores, y, reduction="mean")'},
        {"backward": "scaler.scale(loss).backward()"},
        {"last": "step % args.accumulate == args.accumulate - 1"},
        {"scale": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"},
        {"backward": "loss.backward(); total = loss.detach() / args.accumulate"},
    ],
)
def test_nothing_divides_the_loss(tmp_path: Path, parts: dict[str, str]) -> None:
    assert found(tmp_path, "FSDP426", parts)


@pytest.mark.parametrize(
    "parts",
    [
        {"backward": "(loss / args.accumulate).backward()"},
        {"loss": "loss /= args.accumulate"},
        {"loss": "loss = loss.div(args.accumulate)"},
        {"loss": "loss = loss.div_(args.accumulate)"},
        {"loss": "loss = loss * 0.25"},
        {"loss": "loss = Scale.apply(loss)"},
        {"backward": "scaler.scale(loss / args.accumulate).backward()"},
        {"loss": 'loss = F.cross_entropy(scores, y, reduction="sum")'},
        {"loss": "loss = F.cross_entropy(scores, y, reduction=args.reduction)"},
        {"loss": "loss = loss + 0.1 * scores.square().sum()"},
        {"backward": "loss.backward(torch.tensor(0.25))"},
        {"scale": "[p.grad.div_(args.accumulate) for p in model.parameters()]"},
        {"scale": "model.set_gradient_divide_factor(8)"},
        {"last": "bool(y.any())"},
        {"last": "True"},
    ],
)
def test_a_division_may_be_somewhere(tmp_path: Path, parts: dict[str, str]) -> None:
    assert not found(tmp_path, "FSDP426", parts)


@pytest.mark.parametrize(
    "parts",
    [
        {"teacher": "teacher.requires_grad_(False)"},
        {"teacher": "[p.requires_grad_(False) for p in teacher.parameters()]"},
        {"teacher": "for p in teacher.parameters(): p.requires_grad = False"},
        {"teacher": "teacher.requires_grad_(False); fully_shard(teacher)"},
        {"teacher": "teacher.requires_grad_(False).train()"},
    ],
)
def test_a_frozen_model_drops_elements(tmp_path: Path, parts: dict[str, str]) -> None:
    assert found(tmp_path, "FSDP425", parts)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"teacher": "pass"},
        {"teacher": "teacher.requires_grad_(False)", "dropout": "0.0"},
        {"teacher": "teacher.requires_grad_(False)", "dropout": "float(input())"},
        {"teacher": "teacher.requires_grad_(False); teacher.train(mode=False)"},
        {
            "teacher": "teacher.requires_grad_(False)",
            "after": "[t.lerp_(p, 0.1) for t, p in zip(teacher.parameters(), model.parameters())]",
        },
        {
            "teacher": "teacher.requires_grad_(False)",
            "after": "teacher.load_state_dict(model.state_dict())",
        },
    ],
)
def test_evaluation_mode_no_dropout_or_new_weights(tmp_path: Path, parts: dict[str, str]) -> None:
    assert not found(tmp_path, "FSDP425", parts)
