"""Loops in their forms: generators and iterators of the program, `next`, `while` as a test."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, events, program

from fsdplint.trace import GuardKind, LoaderIterated, LoaderLeft, Sharded

HELPERS = """
def one_by_one(items):
    for item in items:
        yield item

def delegated(items):
    yield from one_by_one(items)

def some(items):
    for item in items:
        if chosen(item):
            yield item

class Items:
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)

class Yielding(Items):
    def __iter__(self):
        for item in self.items:
            yield item

model = Net()
"""
NEXT = "while True:\n    try:\n        layer = next(iterator)\n    except StopIteration:\n        break\n"
LOOPS = {
    "generator": "for layer in one_by_one(model.layers):\n    fully_shard(layer)",
    "yield from": "for layer in delegated(model.layers):\n    fully_shard(layer)",
    "enumerated": "for n, layer in enumerate(one_by_one(model.layers)):\n    fully_shard(layer)",
    "one turn": "for turn in range(1):\n    fully_shard(model.layers[0])",
    "__iter__": "for layer in Items(model.layers):\n    fully_shard(layer)",
    "generator in __iter__": "for layer in Yielding(model.layers):\n    fully_shard(layer)",
    "next": f"iterator = iter(model.layers)\n{NEXT}    fully_shard(layer)",
    "next of a generator": f"iterator = one_by_one(model.layers)\n{NEXT}    fully_shard(layer)",
    "next with a default": "iterator = iter(model.layers)\n"
    "while (layer := next(iterator, None)) is not None:\n    fully_shard(layer)",
    "one by one": "iterator = iter([model.layers[0], model.layers[1]])\n"
    "fully_shard(next(iterator))\nfully_shard(next(iterator))",
}


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
def test_every_element_is_visited_for_certain(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, HELPERS + body + "\ndist.barrier()\n")
    sharded = list(found.traces[0].of(Sharded))
    assert {class_of(found, event.module) for event in sharded} == {"Block"}
    assert all(found.traces[0].certainty.of_module(event) for event in sharded)


@pytest.mark.parametrize(
    "change",
    [
        "layers = layers[1:]",
        "layers = list(model.modules())[1:]",
        "layers.append(model.head)",
        "layers.remove(model.layers[0])",
        "layers += [model.head]",
    ],
)
def test_a_list_that_was_changed_is_not_certain(tmp_path: Path, change: str) -> None:
    body = f"layers = list(model.layers)\n{change}\nfor one in layers:\n    fully_shard(one)\n"
    found = program(tmp_path, HELPERS + body + "dist.barrier()\n")
    sharded = list(found.traces[0].of(Sharded))
    assert sharded
    assert not any(found.traces[0].certainty.of_module(event) for event in sharded)


def test_a_generator_that_selects_is_not_certain(tmp_path: Path) -> None:
    body = "for layer in some(model.layers):\n    fully_shard(layer)\ndist.barrier()\n"
    found = program(tmp_path, HELPERS + body)
    sharded = list(found.traces[0].of(Sharded))
    assert sharded
    assert not any(found.traces[0].certainty.of_module(event) for event in sharded)


@pytest.mark.parametrize(
    "test",
    ["type(module) in classes", "type(module).__name__ in names", "module.__class__ in classes"],
)
def test_classes_from_the_settings_are_not_certain(tmp_path: Path, test: str) -> None:
    body = f"""
import os
names = os.environ.get("UNITS", "Block").split(",")
classes = {{type(module) for module in model.modules() if type(module).__name__ in names}}
for module in reversed(list(model.modules())):
    if {test}:
        fully_shard(module)
dist.barrier()
"""
    found = program(tmp_path, HELPERS + body)
    sharded = [event for trace in found.traces for event in trace.of(Sharded)]
    assert sharded
    assert not any(found.traces[0].certainty.of_module(event) for event in sharded)


def test_what_follows_a_yield_happens_after_the_turn(tmp_path: Path) -> None:
    body = (
        "def around(items):\n    for item in items:\n        yield item\n    fully_shard(model)\n"
        "for layer in around(model.layers):\n    fully_shard(layer)\ndist.barrier()\n"
    )
    found = program(tmp_path, HELPERS + body)
    order = [class_of(found, event.module) for event in found.traces[0].of(Sharded)]
    assert order[-1] == "Net" and set(order[:-1]) == {"Block"}


@pytest.mark.parametrize("leaving", ["break", "return"])
def test_a_loop_that_is_left_ends_the_generator(tmp_path: Path, leaving: str) -> None:
    body = (
        "def around(items):\n    for item in items:\n        yield item\n    fully_shard(model)\n"
        "def main():\n    for layer in around(model.layers):\n        fully_shard(layer)\n"
        f"        {leaving}\nmain()\ndist.barrier()\n"
    )
    found = program(tmp_path, HELPERS + body)
    order = [class_of(found, event.module) for event in found.traces[0].of(Sharded)]
    assert order == ["Block"]


TESTS = {
    "rank": "while dist.get_rank() == 0:\n    fully_shard(model)\n    break\nfully_shard(model.head)",
    "return": "def main():\n    while dist.get_rank() == 0:\n        fully_shard(model)\n"
    "        break\n    fully_shard(model.head)\nmain()",
}


@pytest.mark.parametrize("body", TESTS.values(), ids=TESTS)
def test_a_while_that_breaks_at_once_is_a_test(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, "model = Net()\n" + body + "\ndist.barrier()\n")
    first, second = found.traces[0].of(Sharded)
    assert [guard.kind for guard in first.guards] == [GuardKind.RANK] and not first.in_loop
    assert not second.guards


def test_a_test_that_is_false_executes_nothing(tmp_path: Path) -> None:
    found = program(tmp_path, "model = Net()\nwhile None:\n    fully_shard(model)\n    break\n")
    assert not list(events(found, Sharded))


PASSES = {
    "for": "for batch in loader:\n    pass",
    "iter": "for batch in iter(loader):\n    pass",
    "generator": "for batch in one_by_one(loader):\n    pass",
    "class": "for batch in Items(loader):\n    pass",
    "next": "iterator = iter(loader)\n" + NEXT.replace("layer", "batch") + "    print(batch)",
}


@pytest.mark.parametrize("body", PASSES.values(), ids=PASSES)
def test_a_pass_over_a_loader_begins_and_ends_once(tmp_path: Path, body: str) -> None:
    loader = "model = fully_shard(Net())\nloader = torch.utils.data.DataLoader([1, 2])\n"
    found = program(tmp_path, HELPERS + loader + body + "\n")
    assert len(list(found.traces[0].of(LoaderIterated))) == 1
    assert len(list(found.traces[0].of(LoaderLeft))) == 1


def test_a_pass_that_iter_begins_ends_at_the_next_one(tmp_path: Path) -> None:
    body = (
        "loader = torch.utils.data.DataLoader([1, 2])\nother = torch.utils.data.DataLoader([3])\n"
        "batch = next(iter(loader))\nfor one in other:\n    print(one)\n"
    )
    found = program(tmp_path, "model = fully_shard(Net())\n" + body)
    kinds = [type(e) for e in found.traces[0] if isinstance(e, LoaderIterated | LoaderLeft)]
    assert kinds == [LoaderIterated, LoaderLeft] * 2


MATCHES = {
    "match bool(dist.get_rank() == 0):\n    case True:\n        fully_shard(model)\n    case _:\n"
    "        pass": {"Net"},
    "match model:\n    case nn.Linear():\n        fully_shard(model)\n    case Net():\n"
    "        fully_shard(model.head)": {"Linear"},
    "match 3:\n    case 1 | 2:\n        fully_shard(model)\n    case number:\n        "
    "fully_shard(model.head)": {"Linear"},
    "match 'a':\n    case 'a' if False:\n        fully_shard(model)\n    case None:\n        "
    "fully_shard(model)\n    case _:\n        fully_shard(model.head)": {"Linear"},
}


@pytest.mark.parametrize("body", MATCHES)
def test_each_case_is_a_test(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, "model = Net()\n" + body + "\ndist.barrier()\n")
    assert {class_of(found, e.module) for e in found.traces[0].of(Sharded)} == MATCHES[body]


ASKED = {
    'name = "module"\nif hasattr(model, name):\n    fully_shard(model.head)\n': False,
    'class Names:\n    one = "module"\nif hasattr(model, Names.one):\n    fully_shard(model.head)\n': False,
    'start = "mod"\nif hasattr(model, f"{start}ule"):\n    fully_shard(model.head)\n': False,
    'if hasattr(model, "other"):\n    fully_shard(model.head)\n': False,
    "if hasattr(model, name()):\n    fully_shard(model.head)\n": True,
}


@pytest.mark.parametrize("body", ASKED)
def test_the_value_of_the_name_of_an_attribute_counts(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, "model = Net()\nfully_shard(model)\n" + body + "dist.barrier()\n")
    assert any(class_of(found, e.module) == "Linear" for e in events(found, Sharded)) == ASKED[body]


LARGE = f"model = nn.Sequential({', '.join(['nn.Linear(4, 4)'] * 120)})"


@pytest.mark.parametrize(
    "walk",
    [
        "for part in model.modules():\n    if isinstance(part, nn.Linear):",
        "for name, part in model.named_modules():\n    if isinstance(part, nn.Linear):",
    ],
)
def test_a_loop_visits_all_modules_of_a_large_model(tmp_path: Path, walk: str) -> None:
    found = program(tmp_path, f"{LARGE}\n{walk}\n        fully_shard(part)\n")
    assert len({event.module for event in events(found, Sharded)}) == 120
