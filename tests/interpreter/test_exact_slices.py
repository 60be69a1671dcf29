"""Slices of lists between known bounds take the elements that Python takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Sharded

CODE = """
import sys

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(1, 1), nn.ReLU(), nn.Conv1d(3, 3, 1)])
        self.many = nn.ModuleList([nn.Linear(8, 8) for _ in range(int(sys.argv[1]))])

model = Net()
layers = list(model.blocks)
for layer in {taken}:
    fully_shard(layer)
"""
ALL = ["Linear", "ReLU", "Conv1d"]
TAKEN = {
    "model.blocks[1:]": ALL[1:],
    "model.blocks[:-1]": ALL[:-1],
    "model.blocks[::2]": ALL[::2],
    "model.blocks[::-1]": ALL[::-1],
    "model.blocks[-2:]": ALL[-2:],
    "layers[:1]": ALL[:1],
    "layers[1:][:1]": ALL[1:2],
    "(*model.blocks,)[1:]": ALL[1:],
    "[*model.blocks[:1], *model.blocks[2:]]": [ALL[0], ALL[2]],
    "model.blocks[: len(model.blocks) - 1]": ALL[:-1],
    "model.blocks[int(sys.argv[2]) :]": ALL,
    "model.many[1:]": ["Linear"],
}


@pytest.mark.parametrize("taken", TAKEN)
def test_the_elements_of_a_slice(tmp_path: Path, taken: str) -> None:
    found = program(tmp_path, CODE.format(taken=taken))
    modules = found.traces[0].modules
    names = [modules[one.module].class_name.rpartition(".")[2] for one in events(found, Sharded)]
    assert names == TAKEN[taken]
