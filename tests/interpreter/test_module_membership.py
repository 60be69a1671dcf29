"""`module in modules`: whether a module is one of a list is decided by the modules themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.trace import Sharded

PROGRAM = """\
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.down = nn.Linear(8, 8)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.layers = nn.ModuleList([Block(), Block()])

    def units(self):
        return {units}


model = Net()
for module in reversed(list(model.modules())):
    if module {test} model.units():
        fully_shard(module)
"""


@pytest.mark.parametrize(
    ("units", "test", "classes"),
    [
        ("list(self.layers)", "in", ["Block", "Block"]),
        ("self.layers", "in", ["Block", "Block"]),
        ("[self.stem, *self.layers]", "in", ["Block", "Block", "Linear"]),
        ("[self, *self.layers]", "not in", ["Linear"] * 5 + ["ModuleList"]),
    ],
)
def test_membership(tmp_path: Path, units: str, test: str, classes: list[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.replace("{units}", units).replace("{test}", test))
    (trace,) = load([path]).traces
    found = [trace.modules[event.module].class_name for event in trace.of(Sharded)]
    assert sorted(found) == classes
