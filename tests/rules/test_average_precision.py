"""FSDP327: averages in low precision, in several spellings."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_refused_parameters import found

PROGRAM = """\
import argparse

DECAY = 0.999
parser = argparse.ArgumentParser()
parser.add_argument("--decay", type=float)
parser.add_argument("--rate", type=float, default=0.999)
parser.add_argument("--other", type=float, default=0.9)
args = parser.parse_args()
model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = [{kept} for p in model.parameters()]
for step in range(4):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for s, p in zip(average, model.parameters()):
            {update}
"""
KEPT = "p.detach().to(torch.bfloat16)"
UPDATE = "s.lerp_(p.to(s.dtype), 1 - DECAY)"


@pytest.mark.parametrize(
    ("kept", "update"),
    [
        (KEPT, UPDATE),
        ("p.detach().clone().bfloat16()", UPDATE),
        ("p.bfloat16().detach().cpu()", UPDATE),
        ("p.detach().to(dtype=torch.bfloat16, copy=True)", UPDATE),
        ("p.detach().half()", UPDATE),
        (KEPT, "s.mul_(DECAY).add_(p, alpha=1 - DECAY)"),
        (KEPT, "s.mul_(0.99)\n            s.add_(p.data, alpha=0.01)"),
        (KEPT, "s.lerp_(p.to(s.dtype), 1 - args.rate)"),
    ],
)
def test_updates_that_are_rounded_away(tmp_path: Path, kept: str, update: str) -> None:
    assert len(found(tmp_path, "FSDP327", PROGRAM.format(kept=kept, update=update))) == 1


SETTINGS = """\
import json
from dataclasses import dataclass


@dataclass
class Config:
    decay: float = 0.999
    warmup: int = 10


class Average:
    def __init__(self, model, config):
        self.config, self.decay, self.updates = config, config.decay, 0
        self.kept = {{n: {kept} for n, p in model.named_parameters()}}

    @torch.no_grad()
    def update(self, model, step):
        self.updates += 1
        decay = {decay}
        for n, p in model.named_parameters():
            self.kept[n].lerp_(p.to(self.kept[n].dtype), 1 - decay)


model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = Average(model, Config())
for step in range(4):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update(model, step)
"""


@pytest.mark.parametrize(
    "decay",
    [
        "self.decay",
        "float(self.decay)",
        "min(self.decay, self.updates / (self.updates + 10))",
        "min(self.decay, self.updates / (self.config.warmup + self.updates))",
        "min(self.decay, (1 + self.updates) / (10 + self.updates))",
        "min((1 + step) / (10 + step), self.decay)",
        "max(0.5, min(self.decay, (1 + step) / (10 + step)))",
        "min(self.decay, 1 - 1 / 100)",
        "1 - (1 - self.decay)",
    ],
)
def test_a_decay_that_is_a_setting_or_grows(tmp_path: Path, decay: str) -> None:
    text = SETTINGS.format(kept=KEPT, decay=decay)
    assert len(found(tmp_path, "FSDP327", text)) == 1
    assert not found(tmp_path, "FSDP327", SETTINGS.format(kept="p.clone()", decay=decay))


@pytest.mark.parametrize(
    "decay",
    [
        "min(self.decay, self.updates / (self.updates * 2 + 10))",
        "min(self.decay, self.updates / 10)",
        "min(self.decay, 0.5)",
        "min(self.decay, torch.rand(()).item())",
        "min(self.decay, len(optimizer.state) / (len(optimizer.state) + 10))",
        "max(self.decay, (1 + step) / (10 + step))",
        "min(self.decay, step % 4 / (step % 4 + 1))",
        "min(self.decay, (4 - step) / (4 + step))",
        "float(json.load(open('config.json'))['decay'])",
        "1 - self.decay",
    ],
)
def test_a_decay_that_is_not_known(tmp_path: Path, decay: str) -> None:
    assert not found(tmp_path, "FSDP327", SETTINGS.format(kept=KEPT, decay=decay))


@pytest.mark.parametrize(
    ("kept", "update"),
    [
        ("p.detach().clone()", UPDATE),
        ("p.detach().bfloat16().float()", UPDATE),
        ("p.detach().to(args.dtype)", UPDATE),
        ("p.detach().half()", "s.lerp_(p.half(), 0.01)"),
        (KEPT, "s.lerp_(p.to(s.dtype), 0.1)"),
        (KEPT, "s.lerp_(p.to(s.dtype), 1 - args.decay)"),
        (KEPT, "s.lerp_(p.to(s.dtype), 1 - args.other)"),
        (KEPT, "s.copy_(p)"),
        (KEPT, "p.lerp_(s.float(), 0.001)"),
    ],
)
def test_averages_that_move(tmp_path: Path, kept: str, update: str) -> None:
    assert not found(tmp_path, "FSDP327", PROGRAM.format(kept=kept, update=update))
