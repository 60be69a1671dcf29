"""A forward that was the same before is not executed again, and its events are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from programs import program

from fsdplint.interpreter import module_calls
from fsdplint.trace import Called, Trace

TRAIN = "for x in [torch.ones(2), torch.ones(2)]:\n    {}\n"
BODIES = {
    "a loop": "model = Net()\n" + TRAIN.format("model(x)"),
    "two loops": "model = Net()\n" + TRAIN.format("model(x)") + TRAIN.format("model(x)"),
    "sharded in between": "model = Net()\nmodel(1)\nfully_shard(model)\nmodel(1)",
    "another mode": "model = Net()\nmodel(1)\nwith torch.no_grad():\n    model(1)",
    "under a test": "import sys\nmodel = Net()\nmodel(1)\nif sys.argv:\n    model(1)",
    "from a function": "def f(m):\n    m(1)\nmodel = Net()\nf(model)\nmodel(1)\nf(model)",
    "a test of its own": (
        "class Other(Net):\n    def forward(self, x, flag=False):\n"
        "        return self.head(x) if flag else self.embed(x)\n"
        "model = Other()\nmodel(1)\nmodel(1, flag=True)\nmodel(1)"
    ),
    "a counter": (
        "class Other(Net):\n    def forward(self, x):\n        self.calls += 1\n"
        "        if self.calls == 2:\n            return self.head(x)\n        return self.embed(x)\n"
        "model = Other()\nmodel.calls = 0\nmodel(1)\nmodel(1)\nmodel(1)"
    ),
    "a deletion": (
        "class Other(Net):\n    def forward(self, x):\n        if 'x' in seen:\n            del seen['x']\n"
        "            return self.head(x)\n        return self.embed(x)\n"
        "seen = {'x': 1}\nmodel = Other()\nmodel(1)\nmodel(1)"
    ),
    "a list of its own": (
        "class Other(Net):\n    def forward(self, x):\n        parts = []\n        parts.append(x)\n"
        "        return self.head(x) if len(parts) == 1 else self.embed(x)\n"
        "model = Other()\nmodel(1)\nmodel(1)"
    ),
    "a list that is kept": (
        "class Other(Net):\n    def forward(self, x):\n        parts = []\n        parts.append(x)\n"
        "        every.append(parts)\n"
        "        return self.head(x) if len(every) == 1 else self.embed(x)\n"
        "every = []\nmodel = Other()\nmodel(1)\nmodel(1)"
    ),
    "a list of the outer forward": (
        "class Inner(Net):\n    def forward(self, x, parts):\n        parts.append(x)\n"
        "        return self.head(x) if len(parts) == 1 else self.embed(x)\n"
        "class Outer(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.inner = Inner()\n    def forward(self, x):\n        parts = []\n"
        "        self.inner(x, parts)\n        return self.inner(x, parts)\n"
        "model = Outer()\nmodel(1)\nmodel(1)"
    ),
    "a cache": (
        "class Other(Net):\n    def forward(self, x):\n        if 'x' not in seen:\n"
        "            self.embed(x)\n        seen['x'] = 1\n        return self.head(x)\n"
        "seen = {}\nmodel = Other()\nmodel(1)\nmodel(1)\nmodel(1)"
    ),
    "a state": (
        "class Other(Net):\n    def forward(self, x):\n        begun, self.begun = self.begun, True\n"
        "        return self.head(x) if begun else self.embed(x)\n"
        "model = Other()\nmodel.begun = False\nmodel(1)\nmodel(1)\nmodel(1)"
    ),
    "a new part": (
        "class Other(Net):\n    def forward(self, x):\n        return self.last(x)\n"
        "model = Other()\nmodel.last = nn.Linear(8, 8)\nmodel(1)\nmodel(1)\n"
        "model.last = Block()\nmodel(1)"
    ),
    "tests of data": (
        "class Other(Net):\n    def forward(self, x):\n        if x.numel() == 0:\n            return x\n"
        "        y = self.embed(x) if x.any() else self.head(x)\n"
        "        if x.sum() > 1:\n            y = self.head(y)\n        return y\n"
        "model = Other()\nx = torch.ones(2)\nmodel(x)\nmodel(x)\nmodel(x)"
    ),
    "tensors of its own": (
        "class Other(Net):\n    def forward(self, x):\n        y = torch.empty_like(x)\n"
        "        y[x > 0] = self.embed(x)\n        return self.head(y)\n"
        "model = Other()\nx = torch.ones(2)\nmodel(x)\nmodel(x)\nmodel(x)"
    ),
    "a list": (
        "class Other(Net):\n    def forward(self, x):\n        seen.append(x)\n"
        "        return self.head(x) if len(seen) == 1 else self.embed(x)\n"
        "seen = []\nmodel = Other()\nmodel(1)\nmodel(1)"
    ),
}


def events(traces: list[Trace]) -> list[list[tuple[object, ...]]]:
    return [[_fields(event) for event in trace.of(Called)] for trace in traces]


def _fields(event: Called) -> tuple[object, ...]:
    guards = [str(guard) for guard in event.guards]
    stack = [site.location() for site in event.stack]
    own = (event.module, event.via, event.inside, event.index, event.grad, event.collective)
    return (*own, event.in_loop, event.ranks, event.site.location(), guards, stack)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_events_are_those_of_an_execution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    found = events(program(tmp_path, body).traces)

    def execute(*given: Any) -> object:
        *_, forward, facts = given
        forward()
        return facts()

    monkeypatch.setattr(module_calls, "run_forward", execute)
    assert found == events(program(tmp_path, body).traces)
    assert sum(map(len, found)) >= 4


LISTS = """
class Net(Net):
    def forward(self, x):
        parts = [x]
        parts.append(self.embed(x))
        parts[-1][0] = 1
        return self.head(parts[-1])
"""

CACHE = """
class Net(Net):
    def forward(self, x):
        self.last = cache["x"] = 1
        return self.head(x)

cache = {"x": 1}
"""


DATA = """
class Net(Net):
    def forward(self, x):
        y = torch.empty_like(x)
        if x.numel() > 0:
            y[x > 0] = self.embed(x)
        return self.head(y)
"""


DTYPE = """
class Net(Net):
    def forward(self, x):
        self.dtype = next(self.parameters()).dtype
        return self.head(x.to(self.dtype))
"""


@pytest.mark.parametrize("begin, first", [("", 1), (LISTS, 1), (CACHE, 2), (DATA, 2), (DTYPE, 2)])
def test_a_forward_that_was_the_same_is_executed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: str, first: int
) -> None:
    """Lists of its own, and the same values in others, are no changes.

    first: the number of calls after which the forward changes nothing, and its test has given the
        argument a name.
    """
    executed = []
    execute = module_calls._run_method

    def count(*given: object) -> object:
        executed.append(given[1])
        return execute(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(module_calls, "_run_method", count)
    program(tmp_path, f"{begin}\nmodel = Net()\nx = torch.ones(2)" + "\nmodel(x)" * first)
    once = len(executed)
    program(tmp_path, f"{begin}\nmodel = Net()\nx = torch.ones(2)" + "\nmodel(x)" * 5)
    assert once and len(executed) == 2 * once


def test_a_module_that_is_built_in_between_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = []
    execute = module_calls._run_method

    def count(*given: object) -> object:
        executed.append(given[1])
        return execute(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(module_calls, "_run_method", count)
    program(tmp_path, "model = Net()\nmodel(1)")
    once = len(executed)
    program(tmp_path, "model = Net()\nmodel(1)\nloss = nn.MSELoss()\nmodel(1)")
    assert len(executed) == 2 * once
