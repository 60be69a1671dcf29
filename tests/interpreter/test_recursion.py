"""Recursive functions: how deep they are followed."""

from __future__ import annotations

from pathlib import Path

from fsdplint.interpreter.exploration import ProgramLoader
from fsdplint.trace import Sharded

TREE = """
import torch
from torch.distributed.fsdp import fully_shard

def copied(value, found):
    if isinstance(value, dict):
        return [copied(item, found) for item in value.values()]
    if isinstance(value, list):
        return [copied(item, found) for item in value]
    if isinstance(value, tuple):
        return [copied(item, found) for item in value]
    found.append(value)
    return value

for item in batches():
    copied(item, [])
"""

MODULES = """
import torch
from torch.distributed.fsdp import fully_shard

def shard(module, depth):
    for child in module.children():
        shard(child, depth)
    fully_shard(module)

inner = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2)))
shard(torch.nn.Sequential(torch.nn.Sequential(inner)), config.depth)
"""

AGAIN = """
import torch
from torch.distributed.fsdp import fully_shard

class Lazily:
    def __init__(self):
        self.model = None

    def get(self):
        if self.model is None:
            self.model = torch.nn.Linear(2, 2)
            return self.get()
        return fully_shard(self.model)

Lazily().get()
"""


def loaded(folder: Path, text: str) -> ProgramLoader:
    path = folder / "train.py"
    path.write_text(text)
    loader = ProgramLoader([path])
    loader.run()
    return loader


def test_unknown_values_are_followed_one_level_deep(tmp_path: Path) -> None:
    assert loaded(tmp_path, TREE).steps < 1_500


def test_a_tree_of_modules_is_walked_down(tmp_path: Path) -> None:
    trace = loaded(tmp_path, MODULES).program.traces[0]
    assert len({event.module for event in trace.of(Sharded)}) == 5


def test_a_call_that_finds_another_state_is_followed(tmp_path: Path) -> None:
    trace = loaded(tmp_path, AGAIN).program.traces[0]
    assert len(list(trace.of(Sharded))) == 1
