"""FSDP438: an optimizer that each turn of a loop builds again, and what explains one."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEADER = """\
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()
dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model)
data = torch.utils.data.TensorDataset(torch.randn(64, 8))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)


def epoch(model, optimizer, loader):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = None

    def configure(self):
        return torch.optim.RMSprop(self.model.parameters(), lr=args.lr)

    def fit_epoch(self):
        self.optimizer = self.configure()
        epoch(self.model, self.optimizer, self.loader)

    def fit_epoch_with_one(self):
        if self.optimizer is None:
            self.optimizer = self.configure()
        epoch(self.model, self.optimizer, self.loader)


"""


@pytest.mark.parametrize(
    "body",
    [
        """
        for number in range(4):
            sampler.set_epoch(number)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
            epoch(model, optimizer, loader)
        """,
        """
        trainer = Trainer(model, loader)
        for number in range(4):
            trainer.fit_epoch()
        """,
        """
        number = 0
        while number < 4:
            optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
            epoch(model, optimizer, loader)
            number += 1
        """,
        """
        def step(model, x):
            optimizer = torch.optim.Adam(params=model.parameters(), lr=args.lr)
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        for x in batches():
            step(model, x)
        """,
        """
        for (x,) in loader:
            optimizer = torch.optim.Adam(list(model.parameters()), lr=args.lr)
            model(x).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    ],
)
def test_built_in_each_turn(tmp_path: Path, body: str) -> None:
    assert len(findings(program(tmp_path, body, header=HEADER), "FSDP438")) == 1


TURN = """
for number in range(4):
    {before}
    optimizer = torch.optim.{optimizer}
    epoch(model, optimizer, {loader})
    {after}
"""
ADAM = "Adam(model.parameters(), lr=args.lr)"


@pytest.mark.parametrize(
    ("optimizer", "loader", "before", "after"),
    [
        ("SGD(model.parameters(), lr=args.lr)", "loader", "pass", "pass"),
        ("Adam(model.parameters(), lr=0.1 / (number + 1))", "loader", "pass", "pass"),
        ("Adam(model.parameters(), lr=rates(number))", "loader", "pass", "pass"),
        (ADAM, "DataLoader(tasks[number])", "pass", "pass"),
        (ADAM, "batches(number)", "pass", "pass"),
        (ADAM, "loader", "model.load_state_dict(torch.load('start.pt'))", "pass"),
        (ADAM, "loader", "[m.reset_parameters() for m in model]", "pass"),
        (ADAM, "loader", "pass", "nn.init.normal_(model[0].weight)"),
        (ADAM, "loader", "model[0].requires_grad_(number > 1)", "pass"),
        (ADAM, "loader", "model = fully_shard(nn.Sequential(nn.Linear(8, 8)))", "pass"),
        (ADAM, "loader", "rewind(model)", "pass"),
        (ADAM, "loader", "pass", "model[1].weight.data.mul_(mask)"),
        ("LBFGS(model.parameters())", "loader", "pass", "pass"),
        ("Adam(groups(model, number), lr=args.lr)", "loader", "pass", "pass"),
    ],
)
def test_what_explains_it(
    tmp_path: Path, optimizer: str, loader: str, before: str, after: str
) -> None:
    body = TURN.format(optimizer=optimizer, loader=loader, before=before, after=after)
    assert findings(program(tmp_path, body, header=HEADER), "FSDP438") == []


@pytest.mark.parametrize(
    "body",
    [
        """
        trainer = Trainer(model, loader)
        for number in range(4):
            trainer.fit_epoch_with_one()
        """,
        """
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
        for number in range(4):
            if number == 2:
                optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
            epoch(model, optimizer, loader)
        """,
        """
        for number in range(4):
            new = torch.optim.Adam(model.parameters(), lr=args.lr)
            if number:
                new.load_state_dict(optimizer.state_dict())
            optimizer = new
            epoch(model, optimizer, loader)
        """,
    ],
)
def test_one_that_keeps_its_moments(tmp_path: Path, body: str) -> None:
    assert findings(program(tmp_path, body, header=HEADER), "FSDP438") == []
