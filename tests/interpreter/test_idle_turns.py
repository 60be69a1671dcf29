"""Turns of a loop over modules that repeat one that did nothing are left out."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest
from programs import program

from fsdplint.interpreter import idle_turns
from fsdplint.interpreter.dispatch import EXECUTORS
from fsdplint.trace import Trace

MODEL = """
class Part(nn.Module):
    def __init__(self, flag=False):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.act = nn.GELU()
        self.flag = flag
        if flag:
            self.special = nn.Linear(8, 8)
    def forward(self, x):
        return self.act(self.linear(x))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part(), Part(), Part(True), Part(), Part(True)])
    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x
model = Model()
"""

SHARDING = {
    "a class": "for m in model.modules():\n    if isinstance(m, Part):\n        fully_shard(m)\n",
    "a union": (
        "for m in model.modules():\n    if isinstance(m, Part | nn.Embedding):\n"
        "        fully_shard(m)\n"
    ),
    "another class goes on": (
        "for m in model.modules():\n    if not isinstance(m, Part):\n        continue\n"
        "    fully_shard(m)\n"
    ),
    "the type": "for m in model.modules():\n    if type(m) is Part: fully_shard(m)\n",
    "the name of the class": (
        "for n, m in model.named_modules():\n    if m.__class__.__name__ in ('Part', 'Other'):\n"
        "        fully_shard(m)\n"
    ),
    "an attribute": (
        "for m in model.modules():\n    if hasattr(m, 'special'):\n        fully_shard(m)\n"
    ),
    "a function": (
        "def shard(m):\n    '''Shard a part.'''\n    if isinstance(m, Part):\n"
        "        fully_shard(m)\n    else:\n        pass\nmodel.apply(shard)\n"
    ),
}

# Each turn has a meaning of its own.
OTHERS = {
    "a count": (
        "count = 0\nfor m in model.modules():\n    if isinstance(m, nn.GELU): count += 1\n"
        "if count == 6:\n    fully_shard(model)\n"
    ),
    "a flag": (
        "seen = False\nfor m in model.modules():\n    if seen and isinstance(m, nn.GELU):\n"
        "        fully_shard(model)\n        break\n    if isinstance(m, Part):\n        seen = True\n"
    ),
    "a flag of an object": (
        "class State: seen = False\nstate = State()\nfor m in model.modules():\n"
        "    if state.seen and isinstance(m, nn.GELU):\n        fully_shard(model)\n        break\n"
        "    if isinstance(m, Part) and hasattr(m, 'special'):\n        state.seen = True\n"
    ),
    "a list that is filled": (
        "found = []\nfor m in model.modules():\n    if found and isinstance(m, nn.ModuleList):\n"
        "        fully_shard(model)\n    if found and isinstance(m, nn.GELU):\n"
        "        fully_shard(model)\n        break\n    if isinstance(m, Part) and hasattr(m, 'special'):\n"
        "        found.append(m)\n"
    ),
    "a value of an attribute": (
        "for m in model.modules():\n    if getattr(m, 'flag', False):\n        fully_shard(m)\n"
    ),
    "a name": (
        "for n, m in model.named_modules():\n    if n == 'parts.5.linear':\n        fully_shard(m)\n"
    ),
    "an identity": (
        "last = model.parts[5].linear\nfor m in model.modules():\n    if m is last:\n"
        "        fully_shard(m)\n"
    ),
    "the last module": (
        "for m in model.modules():\n    if isinstance(m, nn.Embedding):\n        break\n"
        "fully_shard(m)\n"
    ),
    "a part that is added": (
        "model.parts[4].add_module('special', nn.Linear(8, 8))\n"
        "for m in model.modules():\n    if hasattr(m, 'special'):\n        fully_shard(m)\n"
    ),
    "a loop in the turn": (
        "for m in model.modules():\n    if isinstance(m, (Part, nn.ModuleList)):\n"
        "        for n, p in m.named_children():\n            if n == 'special':\n"
        "                fully_shard(p)\n"
    ),
}


def events(traces: list[Trace]) -> list[list[str]]:
    """The events with their places, and the modules or other objects that they name."""
    return [
        [
            f"{type(one).__name__} {one.site.location()} {getattr(one, 'module', '')}"
            for one in trace
        ]
        for trace in traces
    ]


@pytest.mark.parametrize("body", [*SHARDING.values(), *OTHERS.values()], ids=[*SHARDING, *OTHERS])
def test_the_events_are_those_of_all_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    found = program(tmp_path, MODEL + body)
    monkeypatch.setattr(idle_turns, "FEWEST", 10**6)
    every = program(tmp_path, MODEL + body)
    assert events(found.traces) == events(every.traces)
    assert "Sharded" in str(events(found.traces))


@pytest.mark.parametrize("body", SHARDING.values(), ids=SHARDING)
def test_turns_that_do_nothing_are_made_once_for_a_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    few = _tests_made(tmp_path, monkeypatch, MODEL + body)
    monkeypatch.setattr(idle_turns, "FEWEST", 10**6)
    every = _tests_made(tmp_path, monkeypatch, MODEL + body)
    assert few < every


def _tests_made(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> int:
    """How many conditions of `if` statements the runs of a program evaluate."""
    made = []
    execute = EXECUTORS[cst.If]
    monkeypatch.setitem(EXECUTORS, cst.If, lambda run, node: made.append(1) or execute(run, node))
    program(folder, body)
    monkeypatch.setitem(EXECUTORS, cst.If, execute)
    return len(made)
