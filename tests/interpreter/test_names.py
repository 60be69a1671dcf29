"""Code that a name chooses: members of modules, entries of registries, imported modules."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

from fsdplint.interpreter import Program
from fsdplint.trace import OptimizerBuilt

HEAD = """\
import argparse
import enum
import functools
import importlib
import sys
import torch
from torch import nn, optim
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", choices=["SGD", "AdamW"], default="SGD")
parser.add_argument("--name")
parser.add_argument("--lr", type=float)
args = parser.parse_args()

"""
FILES = {
    "optims": """\
import torch
def adam(model):
    return torch.optim.Adam(model.parameters())
""",
    "optims2": """\
import torch
class A:
    def __init__(self, model):
        self.model = model
    def build(self):
        return torch.optim.Adam(self.model.parameters())
class B(A):
    pass
""",
}
TRAIN = """\


def main():
    model = nn.Linear(8, 8)
    {first}
    {second}
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()


main()
"""

# Definitions, and the expression that builds the optimizer.
BUILDS = {
    "getattr const": ("", "getattr(torch.optim, 'AdamW')(model.parameters())"),
    "getattr choices": ("", "getattr(torch.optim, args.optimizer)(model.parameters(), lr=args.lr)"),
    "getattr unknown": ("", "getattr(torch.optim, args.name)(model.parameters(), lr=args.lr)"),
    "getattr from optim": ("", "getattr(optim, args.name)(model.parameters(), lr=args.lr)"),
    "dict const": ("", "torch.optim.__dict__['AdamW'](model.parameters())"),
    "dict unknown": ("", "torch.optim.__dict__[args.name](model.parameters())"),
    "dict get": ("", "torch.optim.__dict__.get(args.name)(model.parameters())"),
    "vars const": ("", "vars(torch.optim)['AdamW'](model.parameters())"),
    "vars unknown": ("", "vars(torch.optim)[args.name](model.parameters())"),
    "eval const": ("", "eval('torch.optim.AdamW')(model.parameters())"),
    "import_module": ("", "importlib.import_module('torch.optim').AdamW(model.parameters())"),
    "import_module getattr": (
        "",
        "getattr(importlib.import_module('torch.optim'), args.name)(model.parameters())",
    ),
    "dict display": (
        "",
        "{'adam': torch.optim.Adam, 'sgd': torch.optim.SGD}[args.name](model.parameters())",
    ),
    "dict display get": (
        "",
        "{'adam': torch.optim.Adam, 'sgd': torch.optim.SGD}.get(args.name, torch.optim.SGD)(model.parameters())",
    ),
    "dict lambda": (
        "",
        "{'adam': lambda p: torch.optim.Adam(p), 'sgd': lambda p: torch.optim.SGD(p)}[args.name](model.parameters())",
    ),
    "dict built": (
        "",
        "{'adam': torch.optim.Adam(model.parameters()), 'sgd': torch.optim.SGD(model.parameters())}[args.name]",
    ),
    "dict one": ("", "{'adam': torch.optim.Adam}[args.name](model.parameters())"),
    "enum": ("", "getattr(torch.optim, Opt(args.name).value)(model.parameters())"),
    "partial": (
        "",
        "__import__('functools').partial(getattr(torch.optim, args.name), lr=0.1)(model.parameters())",
    ),
    "__import__": ("", "__import__('torch.optim', fromlist=['x']).AdamW(model.parameters())"),
    "getattr kwargs": (
        "",
        "getattr(torch.optim, args.name)(params=model.parameters(), **vars(args))",
    ),
    "attr path": ("", "getattr(getattr(torch, 'optim'), 'AdamW')(model.parameters())"),
    "default": ("", "getattr(torch.optim, args.name, torch.optim.SGD)(model.parameters())"),
    "decorator with name": (
        """\
REG = {}
def register(name):
    def wrap(fn):
        REG[name] = fn
        return fn
    return wrap
@register("adam")
def build(model):
    return torch.optim.Adam(model.parameters())
@register("sgd")
def build2(model):
    return torch.optim.SGD(model.parameters())
""",
        "REG[args.name](model)",
    ),
    "decorator by __name__": (
        """\
REG = {}
def register(fn):
    REG[fn.__name__] = fn
    return fn
@register
def adam(model):
    return torch.optim.Adam(model.parameters())
""",
        'REG["adam"](model)',
    ),
    "decorator by __name__ unknown": (
        """\
REG = {}
def register(fn):
    REG[fn.__name__] = fn
    return fn
@register
def adam(model):
    return torch.optim.Adam(model.parameters())
""",
        "REG[args.name](model)",
    ),
    "class decorator": (
        """\
REG = {}
def register(name):
    def wrap(cls):
        REG[name] = cls
        return cls
    return wrap
@register("plain")
class Builder:
    def __init__(self, model):
        self.model = model
    def build(self):
        return torch.optim.Adam(self.model.parameters())
""",
        "REG[args.name](model).build()",
    ),
    "class decorator __name__": (
        """\
REG = {}
def register(cls):
    REG[cls.__name__] = cls
    return cls
@register
class Builder:
    def __init__(self, model):
        self.model = model
    def build(self):
        return torch.optim.Adam(self.model.parameters())
""",
        "REG[args.name](model).build()",
    ),
    "registry object": (
        """\
class Registry:
    def __init__(self, name):
        self.name = name
        self.entries = {}
    def register(self, name=None):
        def wrap(obj):
            self.entries[name or obj.__name__] = obj
            return obj
        return wrap
    def get(self, name):
        if name not in self.entries:
            raise KeyError(name)
        return self.entries[name]
    def build(self, name, *a, **k):
        return self.get(name)(*a, **k)
OPTIMIZERS = Registry("optimizers")
@OPTIMIZERS.register("adam")
def adam(model):
    return torch.optim.Adam(model.parameters())
@OPTIMIZERS.register()
def sgd(model):
    return torch.optim.SGD(model.parameters())
""",
        "OPTIMIZERS.build(args.name, model)",
    ),
    "registry object class": (
        """\
class Registry:
    def __init__(self):
        self._dict = dict()
    def register(self, obj):
        self._dict[obj.__name__] = obj
        return obj
    def __getitem__(self, name):
        return self._dict[name]
OPTIMIZERS = Registry()
@OPTIMIZERS.register
class Wrapper:
    @staticmethod
    def build(model):
        return torch.optim.SGD(model.parameters())
""",
        "OPTIMIZERS[args.name].build(model)",
    ),
    "class attr registry": (
        """\
class Factory:
    registry = {}
    @classmethod
    def register(cls, name):
        def wrap(fn):
            cls.registry[name] = fn
            return fn
        return wrap
    @classmethod
    def create(cls, name, *args):
        return cls.registry[name](*args)
@Factory.register("adam")
def adam(model):
    return torch.optim.Adam(model.parameters())
""",
        "Factory.create(args.name, model)",
    ),
    "call register": (
        """\
REG = {}
def adam(model):
    return torch.optim.Adam(model.parameters())
def sgd(model):
    return torch.optim.SGD(model.parameters())
REG.update(adam=adam, sgd=sgd)
""",
        "REG[args.name](model)",
    ),
    "get default": (
        """\
REG = {}
def adam(model):
    return torch.optim.Adam(model.parameters())
REG["adam"] = adam
""",
        "REG.get(args.name, adam)(model)",
    ),
    "globals": (
        """\
def adam(model):
    return torch.optim.Adam(model.parameters())
""",
        'globals()["adam"](model)',
    ),
    "sys.modules": (
        """\
import sys
def adam(model):
    return torch.optim.Adam(model.parameters())
""",
        'getattr(sys.modules[__name__], "adam")(model)',
    ),
    "eval name": (
        """\
def adam(model):
    return torch.optim.Adam(model.parameters())
""",
        'eval("adam")(model)',
    ),
    "kwargs settings": (
        """\
def adam(model, **kw):
    return torch.optim.Adam(model.parameters(), **kw)
cfg = dict(type="adam", lr=0.1)
REG={"adam": adam}
""",
        'REG[cfg.pop("type")](model, **cfg)',
    ),
    "tuple of class and args": (
        """\
REG={"adam": (torch.optim.Adam, {"lr": 1}), "sgd": (torch.optim.SGD, {"lr": 2})}
def mk(model):
    cls, kw = REG[args.name]
    return cls(model.parameters(), **kw)
""",
        "mk(model)",
    ),
    "module": (
        """\
import optims
""",
        "getattr(optims, args.name)(model)",
    ),
    "module of classes": (
        """\
import optims2
""",
        "getattr(optims2, args.name)(model).build()",
    ),
    "import_module project": (
        """\

""",
        'importlib.import_module("optims").adam(model)',
    ),
    "import_module project getattr": (
        """\

""",
        'getattr(importlib.import_module("optims"), "adam")(model)',
    ),
    "import_module joined": (
        """\

""",
        'getattr(importlib.import_module(".".join(["optims"])), args.name)(model)',
    ),
    "import_module path split": (
        """\
def load(path):
    mod, cls = path.rsplit(".", 1)
    return getattr(importlib.import_module(mod), cls)
""",
        'load("optims.adam")(model)',
    ),
    "torch path split": (
        """\
def load(path):
    mod, cls = path.rsplit(".", 1)
    return getattr(importlib.import_module(mod, package=None), cls)
""",
        'load("torch.optim.AdamW")(model.parameters())',
    ),
}


def built(folder: Path, build: str, *, before: bool) -> Program:
    definitions, expression = BUILDS[build]
    lines = ["fully_shard(model)", f"optimizer = {expression}"]
    first, second = reversed(lines) if before else lines
    body = TRAIN.format(first=first, second=second)
    return program(folder, definitions + body, header=HEAD, **FILES)


@pytest.mark.parametrize("build", BUILDS)
def test_an_optimizer_before_sharding_is_found(tmp_path: Path, build: str) -> None:
    assert findings(built(tmp_path, build, before=True), "FSDP103")


@pytest.mark.parametrize("build", BUILDS)
def test_an_optimizer_after_sharding_is_no_finding(tmp_path: Path, build: str) -> None:
    found = built(tmp_path, build, before=False)
    assert findings(found, "FSDP103") == []
    made = [event for trace in found.traces for event in trace.of(OptimizerBuilt)]
    assert made and all(event.modules for event in made)
