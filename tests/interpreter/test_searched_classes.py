"""Classes that a search among the modules of a model collects by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings

from fsdplint.interpreter import load

PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def find_classes(model, names):
    found = set()
    for name in names:
        for module in model.modules():
            if type(module).__name__ == name:
                found.add(type(module))
                break
        else:
            {missing}
    return found


dist.init_process_group("nccl")
model = Net()
layers = find_classes(model, {names})
for module in reversed(list(model.modules())):
    if isinstance(module, tuple(layers)):
        fully_shard(module)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
"""


CODES = ("FSDP104", "FSDP108", "FSDP111")


def codes(folder: Path, names: str, missing: str) -> list[str]:
    path = folder / "train.py"
    path.write_text(PROGRAM.format(names=names, missing=missing), encoding="utf-8")
    found = load([path])
    return [one.rule.code for code in CODES for one in findings(found, code)]


@pytest.mark.parametrize("missing", ["pass", "raise ValueError(name)"])
def test_names_from_elsewhere_say_nothing_about_the_units(missing: str, tmp_path: Path) -> None:
    assert not codes(tmp_path, "settings()", missing)


def test_known_names_are_found(tmp_path: Path) -> None:
    assert not codes(tmp_path, '["Block"]', "pass")
