"""Tests of the number of submodules: `len(list(module.children())) > 0` and its other spellings."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, program

from fsdplint.trace import Sharded

HAS_PARTS = {
    "greater": "len(list(part.children())) > 0",
    "at least": "len(list(part.children())) >= 1",
    "mirrored": "0 < len(list(part.children()))",
    "not equal": "len(list(part.children())) != 0",
    "truth of the length": "len(list(part.children()))",
    "truth of the list": "list(part.children())",
    "truth of a tuple": "tuple(part.named_children())",
    "negated": "not not list(part.children())",
    "all modules": "len(list(part.modules())) > 1",
    "any": "any(True for _ in part.children())",
    "next": "next(part.children(), None) is not None",
    "comprehension": "[one for one in part.children()]",
    "a variable": "(found := list(part.children())) and len(found) > 0",
}

RECURSION = """
def shard(module):
    for part in module.children():
        if {test}:
            shard(part)
        else:
            fully_shard(part)
    fully_shard(module)

model = Net()
shard(model)
"""


@pytest.mark.parametrize("test", HAS_PARTS.values(), ids=HAS_PARTS)
def test_the_leaves_of_a_model_are_sharded_by_another_line(tmp_path: Path, test: str) -> None:
    found = program(tmp_path, RECURSION.format(test=test))
    for number, trace in enumerate(found.traces):
        events = list(trace.of(Sharded))
        assert not any(event.guards for event in events)
        places = {class_of(found, e.module, number): e.site.location().line for e in events}
        leaf = places["Net"] - 1
        assert places == {
            **dict.fromkeys(("Embedding", "Linear"), leaf),
            **dict.fromkeys(("Block", "ModuleList", "Net"), leaf + 1),
        }


UNKNOWN = """
from elsewhere import Other

class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Other()

model = Holder()
if len(list(model.inner.children())) > 0:
    fully_shard(model.inner)
fully_shard(model)
"""


def test_the_number_of_unknown_parts_is_unknown(tmp_path: Path) -> None:
    found = program(tmp_path, UNKNOWN)
    numbers = {len(list(trace.of(Sharded))) for trace in found.traces}
    assert numbers == {1, 2}


COUNTS = """
small = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
if len(list(small.children())) {test}:
    fully_shard(small)
"""


@pytest.mark.parametrize(
    ("test", "taken"), [("== 2", True), ("> 2", False), ("< 3", True), ("!= 2", False)]
)
def test_the_number_of_known_parts_is_known(tmp_path: Path, test: str, taken: bool) -> None:
    found = program(tmp_path, COUNTS.format(test=test))
    assert {any(True for _ in trace.of(Sharded)) for trace in found.traces} == {taken}


REPEATED = """
from settings import depth
model = Net(depth)
if len(list(model.layers.children())) {test}:
    fully_shard(model)
"""


@pytest.mark.parametrize(
    ("test", "taken"), [("> 0", {True}), ("== 0", {False}), ("> 3", {True, False})]
)
def test_elements_of_an_unknown_number_are_at_least_one(
    tmp_path: Path, test: str, taken: set[bool]
) -> None:
    found = program(tmp_path, REPEATED.format(test=test))
    assert {any(True for _ in trace.of(Sharded)) for trace in found.traces} == taken


def test_an_iterator_is_true_also_if_it_has_no_elements(tmp_path: Path) -> None:
    found = program(
        tmp_path, "leaf = nn.Linear(8, 8)\nif leaf.children():\n    fully_shard(leaf)\n"
    )
    assert all(any(True for _ in trace.of(Sharded)) for trace in found.traces)


OWN_PARAMETERS = {
    "a list": "list({part}.parameters(recurse=False))",
    "the length": "len(list({part}.parameters(recurse=False))) > 0",
    "names": "dict({part}.named_parameters(recurse=False))",
    "a positional argument": "tuple({part}.parameters(False))",
}


@pytest.mark.parametrize("test", OWN_PARAMETERS.values(), ids=OWN_PARAMETERS)
def test_parameters_of_a_module_itself_are_counted(tmp_path: Path, test: str) -> None:
    found = program(
        tmp_path,
        "model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())\n"
        f"for part in (model, *model):\n    if {test.format(part='part')}:\n        fully_shard(part)\n",
    )
    sharded = {
        trace.modules[event.module].class_name
        for trace in found.traces
        for event in trace.of(Sharded)
    }
    assert sharded == {"Linear"}


def test_an_iterator_over_no_parameters_is_true(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "model = nn.Sequential(nn.Linear(8, 8))\nif model.parameters(recurse=False):\n    fully_shard(model)\n",
    )
    assert all(any(True for _ in trace.of(Sharded)) for trace in found.traces)
