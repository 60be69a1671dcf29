"""Small programs for the tests of the interpreter."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.check import check
from fsdplint.interpreter import Program, load
from fsdplint.registry.rules import rule_by_code
from fsdplint.trace import Event

HEADER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard, FullyShardedDataParallel as FSDP


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)


class Net(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.layers = nn.ModuleList([Block() for _ in range(depth)])
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


"""


def program(folder: Path, body: str, *, header: str = HEADER, **files: str) -> Program:
    """A program of one file (`main.py`: header and body) and perhaps more (name without .py)."""
    (folder / "pyproject.toml").touch()
    main = folder / "main.py"
    main.write_text(header + textwrap.dedent(body))
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return load([main])


def events(found: Program, kind: type[Event]) -> Iterator[Event]:
    """The events of a kind in all traces."""
    for trace in found.traces:
        yield from trace.of(kind)


def class_of(found: Program, module: str, trace: int = 0) -> str:
    return found.traces[trace].modules[module].class_name


def findings(found: Program, code: str) -> list[Finding]:
    """What a rule finds in a program."""
    rule = rule_by_code(code)
    assert rule is not None
    return check(found, [rule()])
