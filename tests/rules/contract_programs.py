"""Programs for the fixes of the contract's rules, and what a rule does to them."""

from __future__ import annotations

import textwrap
from pathlib import Path

from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rule import Rule
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(4)])
        self.head = nn.Linear(4, 1)

    def encode(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, x):
        return self.head(self.encode(x))


"""


def rule(code: str) -> Rule:
    found = rule_by_code(code)
    assert found is not None
    return found()


def program(folder: Path, body: str, newline: str = "\n") -> Path:
    path = folder / "train.py"
    text = HEAD + textwrap.dedent(body)
    path.write_bytes(text.replace("\n", newline).encode())
    return path


def fixed(folder: Path, code: str, body: str, newline: str = "\n") -> str | None:
    """The body after the fix of one rule, or None where nothing was fixed."""
    path = program(folder, body, newline)
    result = fix(Workspace([path], unsafe=True), [rule(code)])
    if path not in result.texts:
        return None
    text = result.texts[path]
    assert not fix(Workspace([path], unsafe=True, overrides={path: text}), [rule(code)]).texts
    return text.split(f"{newline}{newline}{newline}")[-1]


def found(folder: Path, code: str, body: str) -> list[str]:
    """The lines of the body at which a rule finds something."""
    path = program(folder, body)
    lines = path.read_text().splitlines()
    return [lines[f.site.location().line - 1].strip() for f in check(load([path]), [rule(code)])]


STEP = """
loss = model(torch.ones(1, 4)).mean()
loss.backward()
optimizer.step()
"""
