"""FSDP419: models whose own code acts in training mode alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEAD = """
import torch.nn.functional as F
from torch.nn.functional import dropout as thin

draw = torch.randn_like

def is_trained(module):
    return module.training

def add(counts):
    counts += 1

class Router(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.gate = nn.Linear(8, 8)
        self.dropout = dropout
        self.register_buffer("load", torch.zeros(8))

    def forward(self, x):
        scores = self.gate(x)
        {code}
        return scores

    def count(self, scores):
        if self.training:
            self.load.add_(scores.sum(0))

model = nn.Sequential(Router({chance}), nn.Linear(8, 8))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())

@torch.no_grad()
def evaluate():
    model.eval()
    total = model(torch.randn(2, 8)).mean()
    {after}
    return total

for step in range(8):
    model(torch.randn(2, 8)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 4 == 0:
        evaluate()
"""
LOAD = "if self.training:\n            self.load += scores.detach().sum(0)"


def _found(folder: Path, code: str, chance: str = "", after: str = "pass") -> list[str]:
    body = HEAD.format(code=code, chance=chance, after=after)
    return [one.message for one in findings(program(folder, body), "FSDP419")]


@pytest.mark.parametrize(
    "code",
    [
        LOAD,
        "if self.training:\n            with torch.no_grad():\n                self.load[0] += 1",
        "self.count(scores)",
        "if self.training:\n            scores = scores + torch.randn_like(scores)",
        "scores = F.dropout(scores, 0.1, self.training)",
        "scores = F.dropout(scores, p=self.dropout, training=self.training)",
        "scores = nn.functional.dropout(scores, training=self.training)",
        "mode = self.training\n        if mode:\n            self.load += 1",
        "if is_trained(self):\n            self.load += 1",
        "if not self.training:\n            pass\n        else:\n            self.load += 1",
        "while self.training:\n            self.load += 1\n            break",
        "match bool(self.training):\n            case True:\n                self.load += 1",
        "counts = self.load\n        if self.training:\n            counts += 1",
        "me = self\n        if me.training:\n            me.load.add_(1)",
        "if self.training:\n            add(self.load)",
        "if self.training:\n            scores = scores + draw(scores)",
        "scores = thin(scores, 0.1, self.training)",
        "scores = thin(scores, 0.1, is_trained(self))",
    ],
)
def test_code_that_acts_in_training_mode(tmp_path: Path, code: str) -> None:
    assert len(_found(tmp_path, code)) == 1


@pytest.mark.parametrize(
    ("code", "chance", "after"),
    [
        (LOAD, "", "model.train()"),
        (LOAD, "", "model.train(mode=True)"),
        ("scores = F.dropout(scores, 0.0, self.training)", "", "pass"),
        ("scores = F.dropout(scores, self.dropout, self.training)", "0.0", "pass"),
        ("scores = F.dropout(scores, 0.1)", "", "pass"),
        ("if self.training:\n            scores = scores.float()", "", "pass"),
        ("if self.training and self.dropout:\n            self.load += 1", "", "pass"),
        ("if self.training:\n            assert scores.ndim == 2", "", "pass"),
        ("if not self.training:\n            self.load += 1", "", "pass"),
        ("self.load += scores.detach().sum(0)", "", "pass"),
        ("if self.training:\n            torch.zeros(8).add_(1)", "", "pass"),
        ("if self.training:\n            scores = scores + 1\n        self.load += 1", "", "pass"),
        ("training = True\n        if training:\n            self.load += 1", "", "pass"),
        ("scores = thin(scores, 0.1, training=True)", "", "pass"),
    ],
)
def test_code_for_which_the_mode_may_not_matter(
    tmp_path: Path, code: str, chance: str, after: str
) -> None:
    assert _found(tmp_path, code, chance, after) == []
