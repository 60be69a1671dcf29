"""Handlers that a program registers under the names of events."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.trace import Collective, ModuleMoved

ENGINE = """\
import collections
from collections import defaultdict
import torch

class Engine:
    def __init__(self, process):
        self.process, self.handlers = process, {handlers}

    def on(self, event, every=1):
        def register(function):
            {register}
            return function
        return register

    def fire(self, event):
        for function, every in self.handlers[event]:
            function(self)

    def run(self, loader):
        self.fire("started")
        for batch in loader:
            self.process(self, batch)
            self.fire("step")

engine = Engine(lambda engine, batch: None)

@engine.on("step")
def check(engine):
    torch.distributed.barrier()

engine.run(torch.ones(3, 2))
"""


@pytest.mark.parametrize(
    "handlers",
    ["defaultdict(list)", "collections.defaultdict(lambda: [])", "defaultdict(list, started=[])"],
)
def test_a_defaultdict_makes_the_value_of_a_missing_key(tmp_path: Path, handlers: str) -> None:
    register = "self.handlers[event].append((function, every))"
    path = tmp_path / "program.py"
    path.write_text(ENGINE.format(handlers=handlers, register=register))
    assert any(next(iter(trace.of(Collective)), None) for trace in load([path]).traces)


SPREAD = """\
import json
import sys
import torch
from torch import nn

S = json.load(open(sys.argv[1]))

def build(offload, width):
    return "cpu" if offload else "cuda"

device = build(**S["sharding"])
if not S["sharding"]["offload"]:
    nn.Linear(2, 2).to(device)
"""


def test_an_unknown_mapping_gives_the_entries_that_the_program_reads(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(SPREAD)
    moves = [event for trace in load([path]).traces for event in trace.of(ModuleMoved)]
    assert {event.device for event in moves} == {"cuda"}
