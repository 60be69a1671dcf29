"""Classes whose statements are executed when their names are used."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst
import pytest
from programs import events, program

from fsdplint.interpreter import Program, load
from fsdplint.interpreter.constructs import statements
from fsdplint.interpreter.deferral import may_be_deferred
from fsdplint.interpreter.project import Project
from fsdplint.syntax.subclass_hooks import changed_names
from fsdplint.trace import OptimizerBuilt, Sharded

FIXTURES = Path(__file__).parents[2] / "fixtures"

HEADER = """
import enum
import dataclasses
import torch
from dataclasses import dataclass, field
from torch import nn
from parts import Base, Hooked, Registered, register
LIMITS = [1, 2]
size = 4
size = 5
"""

PARTS = """
import library
ALL = {}

def register(cls):
    ALL[cls.__name__] = cls
    return cls

class Base: ...

class Hooked:
    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "Config" in cls.__dict__:
            config = cls.__dict__["Config"]
            config.owner = cls

class Registered:
    def __init_subclass__(cls):
        ALL[cls.__name__] = cls
"""

PLAIN = {
    "methods": "class A(nn.Module):\n    def f(self, x, y=1, *, z=LIMITS): return x",
    "fields": "@dataclass(slots=True)\nclass A:\n    x: int = 0\n    y: list = field(default_factory=list)",
    "members": "class A(enum.Enum):\n    ONE = 'one'\n    TWO = enum.auto()",
    "decorators": "class A:\n    @property\n    def f(self): ...\n    @f.setter\n    def f(self, x): ...\n"
    "    @torch.no_grad()\n    def g(self): ...",
    "a base class of the project": "class A(Base): ...",
    "a hook that changes the class": "class A(Hooked):\n    class Config:\n        x = 1",
}
NOT_PLAIN = {
    "a hook that registers": "class A(Registered): ...",
    "a hook that changes another class": "class A(Hooked):\n    Config = Base",
    "a base class with such a hook": "class B(Registered): ...\nclass A(B): ...",
    "an unknown base class": "def make(): ...\nclass A(make()): ...",
    "a decorator of the project": "@register\nclass A: ...",
    "a decorated method": "class A:\n    @register\n    def f(self): ...",
    "a call in the body": "class A:\n    x = register(1)",
    "a test in the body": "class A:\n    if LIMITS:\n        x = 1",
    "a name that is bound again": "class A:\n    x = size",
    "a class that is bound again": "class A: ...\nA = register(A)",
    "a name that a function binds": "LEVEL = 1\ndef f():\n    global LEVEL\n    LEVEL = 2\n"
    "class A:\n    x = LEVEL",
    "a module": "class A:\n    model = nn.Linear(2, 2)",
}


def deferred(folder: Path, text: str) -> bool:
    (folder / "parts.py").write_text(PARTS)
    path = folder / "program.py"
    path.write_text(HEADER + text + "\n")
    project = Project({})
    source = project.source(path)
    assert source is not None
    node = next(
        one for one in source.tree.body if isinstance(one, cst.ClassDef) and one.name.value == "A"
    )
    return may_be_deferred(project, source, node)


@pytest.mark.parametrize("name", PLAIN)
def test_the_statement_of_a_plain_class_may_be_executed_later(tmp_path: Path, name: str) -> None:
    assert deferred(tmp_path, PLAIN[name])


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_others_are_executed_in_order(tmp_path: Path, name: str) -> None:
    assert not deferred(tmp_path, NOT_PLAIN[name])


@pytest.mark.parametrize(
    "body, changed",
    [
        ("cls.tag = cls.__name__", set()),
        (
            "for name in cls.__dict__:\n        if not hasattr(cls, name): raise TypeError(name)",
            set(),
        ),
        ("own = cls.__dict__['Config']\n    own.owner = cls", {"Config"}),
        ("own = cls.Config\n    own.owner = cls", None),
        ("cls.known.append(cls)", None),
        ("cls.known[cls.__name__] = cls", None),
        ("register(cls)", None),
        ("with lock: cls.tag = 1", None),
    ],
)
def test_what_a_hook_changes(body: str, changed: set[str] | None) -> None:
    text = f"def __init_subclass__(cls):\n    {body}\n"
    ast.parse(text)
    hook = cst.ensure_type(cst.parse_module(text).body[0], cst.FunctionDef)
    assert changed_names(hook) == changed


def test_a_class_is_changed_by_the_hook_of_its_base_class(tmp_path: Path) -> None:
    body = """
from parts import Hooked

class Net(Hooked):
    class Config:
        def build(self):
            return self.owner()
    def __init__(self):
        self.model = fully_shard(nn.Linear(2, 2))

net = Net.Config().build()
torch.optim.SGD(net.model.parameters())
"""
    found = program(tmp_path, body, parts=PARTS)
    assert len(list(events(found, Sharded))) == len(list(events(found, OptimizerBuilt))) == 1


def outcome(found: Program) -> list[object]:
    return [
        [(type(event), event.site.location(), event.ranks, len(event.guards)) for event in trace]
        for trace in found.traces
    ]


def test_deferral_changes_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = sorted((FIXTURES / "fsdp1").glob("*.py"))[::4]
    lazy = [outcome(load([path])) for path in paths]
    monkeypatch.setattr(statements, "may_be_deferred", lambda *_: False)
    assert [outcome(load([path])) for path in paths] == lazy
