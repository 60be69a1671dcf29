"""Iterators act when they are consumed; what unknown code is given is called perhaps."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import HEADER, class_of, events, program

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code
from fsdplint.trace import Called, Sharded

IMPORTS = "import functools, inspect, itertools\nfrom collections import deque\n"
SHARDING = """
def shard(model):
    for layer in model.layers:
        yield fully_shard(layer)

def delegated(model):
    yield from shard(model)

model = Net()
"""


def sharded(tmp_path: Path, body: str) -> set[str]:
    found = program(tmp_path, IMPORTS + SHARDING + body + "\ndist.barrier()\n")
    certain = [event for event in events(found, Sharded) if not event.callbacks]
    return {class_of(found, event.module) for event in certain if len(event.stack) < 2}


UNCONSUMED = {
    "map": "map(fully_shard, model.layers)",
    "kept": "later = map(fully_shard, model.layers)",
    "expression": "(fully_shard(layer) for layer in model.layers)",
    "passed on": "later = enumerate(fully_shard(layer) for layer in model.layers)",
    "zip": "later = zip(range(4), map(fully_shard, model.layers))",
    "chain": "later = itertools.chain(map(fully_shard, model.layers), [])",
    "filter": "filter(fully_shard, model.layers)",
    "starmap": "itertools.starmap(fully_shard, [(layer,) for layer in model.layers])",
    "in a list": "later = []\nlater.append(fully_shard(layer) for layer in model.layers)",
    "asked": "print(type(map(fully_shard, model.layers)), isinstance(shard(model), list))",
    "argument": "def ignore(steps):\n    return None\nignore(map(fully_shard, model.layers))",
    "unknown code": "tools.keep(map(fully_shard, model.layers))",
    "a part of it": "next(map(fully_shard, model.layers))",
}


@pytest.mark.parametrize("body", UNCONSUMED.values(), ids=UNCONSUMED)
def test_nothing_happens_before_it_is_consumed(tmp_path: Path, body: str) -> None:
    assert sharded(tmp_path, body) == set()


CONSUMED = {
    "list": "list(map(fully_shard, model.layers))",
    "for": "for layer in map(fully_shard, model.layers):\n    pass",
    "later": "later = map(fully_shard, model.layers)\nfor layer in later:\n    pass",
    "any": "any(fully_shard(layer) is None for layer in model.layers)",
    "deque": "deque((fully_shard(layer) for layer in model.layers), maxlen=0)",
    "star": "print(*map(fully_shard, model.layers))",
    "display": "[*map(fully_shard, model.layers)]",
    "unpacking": "a, b, c, d = map(fully_shard, model.layers)",
    "in place": "all_of_them = []\nall_of_them += map(fully_shard, model.layers)",
    "enumerate": "for number, layer in enumerate(map(fully_shard, model.layers)):\n    pass",
    "zip": "list(zip(range(4), map(fully_shard, model.layers)))",
    "chain": "list(itertools.chain(map(fully_shard, model.layers), []))",
    "starmap": "list(itertools.starmap(fully_shard, [(layer,) for layer in model.layers]))",
    "extend": "all_of_them = []\nall_of_them.extend(map(fully_shard, model.layers))",
    "sequential": "nn.Sequential(*(fully_shard(layer) for layer in model.layers))",
    "nested": "list(list(map(fully_shard, layers)) for layers in [model.layers])",
    "argument": "def use(steps):\n    return list(steps)\nuse(map(fully_shard, model.layers))",
    "filter": "list(filter(fully_shard, model.layers))",
}


@pytest.mark.parametrize("body", CONSUMED.values(), ids=CONSUMED)
def test_it_happens_when_it_is_consumed(tmp_path: Path, body: str) -> None:
    assert sharded(tmp_path, body) == {"Block"}


@pytest.mark.parametrize("name", ["shard", "delegated"])
def test_generator_functions(tmp_path: Path, name: str) -> None:
    found = program(tmp_path, IMPORTS + SHARDING + f"list({name}(model))\nmodel(1)\n")
    trace = found.traces[0]
    last = max(event.index for event in trace.of(Sharded))
    assert last < next(trace.of(Called)).index
    idle = program(tmp_path, IMPORTS + SHARDING + f"later = {name}(model)\nmodel(1)\n")
    assert not list(idle.traces[0].of(Sharded))


def test_the_moment_of_consumption_counts(tmp_path: Path) -> None:
    body = "later = map(fully_shard, [*model.layers, model])\nmodel(1)\nlist(later)\n"
    trace = program(tmp_path, IMPORTS + SHARDING + body).traces[0]
    assert next(trace.of(Called)).index < next(trace.of(Sharded)).index


def test_a_filter_by_class_leaves_the_others_out(tmp_path: Path) -> None:
    body = "for m in filter(lambda m: isinstance(m, Block), model.modules()):\n    fully_shard(m)"
    assert sharded(tmp_path, body) == {"Block"}


# What is handed to unknown code ------------------------------------------------------------------


def codes(tmp_path: Path, body: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(HEADER + IMPORTS + body)
    rules = [rule_by_code(code) for code in ("FSDP102", "FSDP103", "FSDP105", "FSDP109")]
    return [found.rule.code for found in check(load([path]), [rule() for rule in rules if rule])]


BUILD = """
class Coder(Net):
    def encode(self, x):
        return self.embed(x)

model = Coder()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
"""
TRAIN = """
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(2, 8)).sum().backward()
optimizer.step()
"""
HANDED_ON = {
    "signature": "print(inspect.signature(model.forward), inspect.getsource(model.encode))",
    "wraps": "wrapped = functools.wraps(model.encode)(lambda *given: model.encode(*given))",
    "update_wrapper": "functools.update_wrapper(lambda *given: model(*given), model.forward)",
    "attribute": "model.old_forward = model.forward",
    "registry": "tools.register(model.encode)\ntools.table['encode'] = model.encode",
    "lambda": "tools.benchmark(lambda: model(torch.randn(2, 8)))",
    "partial": "tools.keep(functools.partial(model.encode, torch.randn(2, 8)))",
    "thread": "import threading\ndef evaluate():\n    model(torch.randn(2, 8))\n"
    "threading.Thread(target=evaluate)",
    "at the end": "import atexit\ndef leave():\n    model.encode(torch.randn(2, 8))\n"
    "atexit.register(leave)",
    "iterator": "tools.keep(model.encode(x) for x in range(3))",
}


@pytest.mark.parametrize("body", HANDED_ON.values(), ids=HANDED_ON)
def test_what_is_handed_on_is_not_called_for_certain(tmp_path: Path, body: str) -> None:
    assert codes(tmp_path, BUILD + body + TRAIN) == []


def test_what_is_called_is_found(tmp_path: Path) -> None:
    encode = "encode = model.encode\nencode(torch.randn(2, 8))"
    assert codes(tmp_path, BUILD + encode) == ["FSDP102"]
    partial = "functools.partial(model, torch.randn(2, 8))()"
    assert codes(tmp_path, BUILD + partial + TRAIN) == ["FSDP109"]
    wrapped = "functools.wraps(model.encode)(lambda *given: model.encode(*given))(1)"
    assert codes(tmp_path, BUILD + wrapped) == ["FSDP102"]


def test_a_defect_within_what_is_handed_on_is_found(tmp_path: Path) -> None:
    lines = [
        "model = Net()",
        "optimizer = torch.optim.AdamW(model.parameters())",
        "fully_shard(model)",
        "model(torch.randn(2, 8)).sum().backward()",
        "optimizer.step()",
    ]
    main = "def main():\n" + "".join(f"    {line}\n" for line in lines)
    assert codes(tmp_path, main + "import cli\ncli.launch(main)\n") == ["FSDP103"]


def test_what_may_be_sharded_elsewhere_is_no_finding(tmp_path: Path) -> None:
    body = (
        "model = Net()\ndef shard():\n    fully_shard(model)\n"
        "for layer in model.layers:\n    fully_shard(layer)\n"
    )
    assert codes(tmp_path, body + "tools.on_start(shard)" + TRAIN) == []
    assert codes(tmp_path, body + TRAIN) == ["FSDP105"]
