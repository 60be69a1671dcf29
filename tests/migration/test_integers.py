"""Numbers of devices are integers by what makes them, not by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import BLOCK, NET, plan

HEAD = (
    """\
import argparse
from dataclasses import dataclass
import torch
import torch.nn as nn
import lightning as L
import zoo
from lightning.fabric.strategies import FSDPStrategy


"""
    + BLOCK
    + NET
)
BODY = """
strategy = FSDPStrategy()
fabric = L.Fabric(devices={count}, strategy=strategy)
fabric.launch()
model = fabric.setup(Net())
fabric.backward(model(torch.randn(4, 8)).sum())
"""
CLASSES = """
class Other:
    count: int = 4


class Settings:
    {own}


settings = Settings()
"""
OPTIONS = """
class Settings:
    count = zoo.count()


parser = argparse.ArgumentParser()
parser.add_argument("--count", type={kind})
args = parser.parse_args()
"""
INTEGERS = {
    "function of torch": ("", "torch.cuda.device_count()"),
    "function of Python": ("ids = zoo.ids()", "len(ids)"),
    "function of the program": ("def number() -> int:\n    return zoo.count()\n", "number()"),
    "class": (CLASSES.format(own="count: int = zoo.count()"), "settings.count"),
    "method": (
        CLASSES.format(own="def count(self) -> int:\n        return zoo.count()"),
        "settings.count()",
    ),
    "base": (
        CLASSES.format(own="pass").replace("class Settings:", "class Settings(Other):"),
        "settings.count",
    ),
    "option": (OPTIONS.format(kind="int"), "args.count"),
    "object in an attribute": (
        CLASSES.format(own="count: int = zoo.count()")
        + "\n\nclass Task:\n    def __init__(self, given: Settings):\n        self.held = given\n"
        + "\n\ntask = Task(zoo.settings())\n",
        "task.held.count",
    ),
}
OTHERS = {
    "method of another name": ("pool = zoo.Pool()", "pool.device_count()"),
    "function of another module": ("", "zoo.get_world_size()"),
    "own function": ("def len(ids):\n    return zoo.count()\n", "len([1, 2])"),
    "class": (CLASSES.format(own="count = zoo.count()"), "settings.count"),
    "other class": (
        CLASSES.format(own="pass").replace("settings = Settings()", "settings = zoo.load()"),
        "settings.count",
    ),
    "method": (
        CLASSES.format(own="def number(self):\n        return zoo.count()")
        + "\n\ndef number() -> int:\n    return 4\n",
        "settings.number()",
    ),
    "option": (OPTIONS.format(kind="zoo.number"), "args.count"),
}


@pytest.mark.parametrize(("code", "count"), INTEGERS.values(), ids=INTEGERS)
def test_an_integer(tmp_path: Path, code: str, count: str) -> None:
    found, text = plan(tmp_path, f"{code}\n{BODY.format(count=count)}", head=HEAD)
    assert [one.reason for one in found.blockers] == []
    assert f"data_parallel_size={count}," in text


@pytest.mark.parametrize(("code", "count"), OTHERS.values(), ids=OTHERS)
def test_perhaps_no_integer(tmp_path: Path, code: str, count: str) -> None:
    found, _ = plan(tmp_path, f"{code}\n{BODY.format(count=count)}", head=HEAD)
    assert {one.code for one in found.blockers} == {"FSDP223-devices-unknown"}
