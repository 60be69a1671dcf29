"""FSDP425 and FSDP442: whether the dropouts of a model set elements to zero."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, chance):
        super().__init__()
        self.first, self.noise, self.last = nn.Linear(4, 4), nn.Dropout(chance), nn.Linear(4, 1)

    def forward(self, rows):
        return self.last(self.noise(self.first(rows)))


def quiet(module):
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            {quiet}


net, other = Net(0.5), Net({chance}).requires_grad_(False)
fully_shard(net)
quiet({of})
engine = torch.optim.SGD(net.parameters(), lr=0.1)
"""
FROZEN = """
for rows in torch.randn(3, 2, 4):
    with torch.no_grad():
        target = other(rows)
    nn.functional.mse_loss(net(rows), target).backward()
    engine.step()
    engine.zero_grad()
"""
EVALUATED = """
for rows in torch.randn(3, 2, 4):
    net(rows).sum().backward()
    engine.step()
    engine.zero_grad()
with torch.no_grad():
    for (rows,) in DataLoader(TensorDataset(torch.randn(8, 4))):
        print(net(rows).mean())
"""
PROGRAMS = {"FSDP425": ("other", FROZEN), "FSDP442": ("net", EVALUATED)}


def findings(folder: Path, code: str, quiet: str, chance: float = 0.5) -> int:
    model, body = PROGRAMS[code]
    path = folder / "program.py"
    path.write_text(HEAD.format(quiet=quiet, of=model, chance=chance) + body)
    rule = rule_by_code(code)
    assert rule is not None
    return len(list(check(load([path]), [rule()])))


@pytest.mark.parametrize("code", PROGRAMS)
@pytest.mark.parametrize(
    ("quiet", "found"),
    [
        ("pass", 1),
        ("part.note = 0.0", 1),
        ("part.train()", 1),
        ("part.eval()", 0),
        ("part.p = 0.0", 0),
        ("setattr(part, 'p', 0.0)", 0),
    ],
)
def test_dropouts_that_the_program_changes(
    tmp_path: Path, code: str, quiet: str, found: int
) -> None:
    assert findings(tmp_path, code, quiet) == found


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ("[net(rows) for _ in range(8)]", 0),
        ("list(net(rows) for number in range(8))", 0),
        ("[net(row) for row in rows]", 1),
        ("net(rows)", 1),
    ],
)
def test_a_model_that_is_called_several_times(tmp_path: Path, values: str, found: int) -> None:
    model, body = PROGRAMS["FSDP442"]
    path = tmp_path / "program.py"
    body = body.replace("net(rows).mean()", values)
    path.write_text(HEAD.format(quiet="pass", of=model, chance=0.5) + body)
    rule = rule_by_code("FSDP442")
    assert rule is not None
    assert len(list(check(load([path]), [rule()]))) == found


def test_a_dropout_of_zero(tmp_path: Path) -> None:
    assert findings(tmp_path, "FSDP425", "pass", chance=0.0) == 0
