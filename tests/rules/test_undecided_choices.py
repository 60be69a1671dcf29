"""FSDP106 where it is not known which modules a loop shards."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
import library


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


kinds = library.kinds()
plain = (nn.ModuleList, nn.Linear)
"""


def found(tmp_path: Path, body: str) -> bool:
    path = tmp_path / "program.py"
    path.write_text(HEAD + body)
    rule = rule_by_code("FSDP106")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


def chosen(test: str) -> str:
    return (
        "modules = list(Net().modules())\n"
        f"chosen = [m for m in modules if {test} and not isinstance(m, plain)]\n"
        "for m in chosen:\n    fully_shard(m)\n"
    )


def handed(body: str) -> str:
    return f"def shard(m):\n{body}\nfor m in Net().modules():\n    shard(m)\n"


UNDECIDED = {
    "classes": chosen("isinstance(m, kinds)"),
    "their set": chosen("type(m) in kinds"),
    "their names": chosen("type(m).__name__ in kinds"),
    "a function": chosen("library.wanted(m)"),
    "an attribute": chosen("hasattr(m, 'shard_me')"),
    "a helper": handed(
        "    if isinstance(m, kinds) and not isinstance(m, plain):\n        fully_shard(m)"
    ),
    "leaving a helper": handed(
        "    if isinstance(m, plain) or not isinstance(m, kinds):\n        return\n    fully_shard(m)"
    ),
    "a walk": "def walk(m):\n    if isinstance(m, kinds) and not isinstance(m, plain):\n"
    "        fully_shard(m)\n    for child in m.children():\n        walk(child)\nwalk(Net())\n",
    "a list": "chosen = []\nfor m in Net().modules():\n"
    "    if isinstance(m, kinds) and not isinstance(m, plain):\n        chosen.append(m)\n"
    "for m in chosen:\n    fully_shard(m)\n",
    "a filter": "modules = list(Net().modules())\n"
    "for m in filter(lambda m: isinstance(m, kinds) and not isinstance(m, plain), modules):\n"
    "    fully_shard(m)\n",
    "blocks afterwards": "def setup(model, kinds):\n    for m in list(model.modules()):\n"
    "        if isinstance(m, kinds):\n            fully_shard(m)\n"
    "    for layer in model.layers:\n        fully_shard(layer)\n    fully_shard(model)\n",
}


@pytest.mark.parametrize("body", UNDECIDED.values(), ids=UNDECIDED)
def test_a_test_that_cannot_be_decided_may_leave_the_root_out(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)


DECIDED = {
    "classes": chosen("isinstance(m, (Net, Block))"),
    "also others": "for m in Net().modules():\n"
    "    if isinstance(m, (Net, Block, library.Layer)):\n        fully_shard(m)\n",
    "a list": "chosen = []\nfor m in Net().modules():\n    if isinstance(m, (Net, Block)):\n"
    "        chosen.append(m)\nfor m in chosen:\n    fully_shard(m)\n",
    "blocks afterwards": "net = Net()\nfully_shard(net)\nfor layer in net.layers:\n"
    "    fully_shard(layer)\n",
}


@pytest.mark.parametrize("body", DECIDED.values(), ids=DECIDED)
def test_parents_before_children_are_found(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)


COPIED = """\
import copy
import sys


def shard(model):
    for module in reversed(list(model.modules())[1:]):
        if module in model.blocks():
            fully_shard(module)
    fully_shard(model)


model = library.__dict__[sys.argv[1]]()
{before}
average = copy.deepcopy(model)
shard(model)
shard(average)
"""


@pytest.mark.parametrize(
    "before",
    [
        "",
        "for module in model.modules():\n    print(isinstance(module, nn.Linear))",
        "for module in model.modules():\n    module.train()",
    ],
    ids=["unread", "tested", "used"],
)
def test_a_copy_has_parts_of_its_own(tmp_path: Path, before: str) -> None:
    assert not found(tmp_path, COPIED.format(before=before))
