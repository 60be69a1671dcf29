"""A program that the tests of the recorder run, and what they read in its record."""

from __future__ import annotations

from typing import TypeVar

from two_ranks import Outcome

from fsdplint.trace import Event

E = TypeVar("E", bound=Event)

MODEL = """
import torch
import torch.distributed as dist
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.head(x)

    def encode(self, x):
        return self.blocks[0](x)

    def size(self):
        return sum(p.numel() for p in self.parameters())

dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(4, 8)
"""


def at(outcome: Outcome, text: str) -> int:
    """The line of the program that ends with this remark."""
    with open(outcome.path, encoding="utf-8") as file:
        lines = [n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# line: {text}")]
    assert len(lines) == 1, text
    return lines[0]


def events(outcome: Outcome, kind: type[E]) -> list[E]:
    return list(outcome.trace.of(kind))


def lines(found: list[E]) -> list[int]:
    return [event.site.location().line for event in found]


def names(outcome: Outcome, modules: tuple[str, ...]) -> list[str]:
    return [outcome.trace.modules[module].class_name for module in modules]
