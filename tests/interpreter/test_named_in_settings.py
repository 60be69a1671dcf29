"""Classes that a text in a settings file names, which the program splits and imports itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

from fsdplint.interpreter import Program
from fsdplint.trace import ModuleBuilt, Sharded

HEAD = """\
import argparse
import importlib
import os
from pathlib import Path

import torch
import yaml
from torch.distributed.fsdp import fully_shard
"""
YAML = """\
model:
  name: nets.wide.Wide
  options:
    width: 8
    heads: {count: 2}
"""
NETS = """
from torch import nn
class Helper(nn.Module):
    pass
class Wide(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.layer = nn.Linear(8, 8)
"""
READ = """
def read(path):
    with open(path) as file:
        return yaml.safe_load(file)
"""
READ_PATH = """
def read(path):
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(path)
    with open(path, encoding="utf-8") as file:
        settings = yaml.safe_load(file)
    if settings is None:
        settings = {}
    return settings
"""
READ_EXPANDED = """
def expanded(value):
    if isinstance(value, dict):
        return {key: expanded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [expanded(one) for one in value]
    if isinstance(value, str):
        return os.path.expandvars(value)
    return value

def read(path):
    settings = yaml.safe_load(open(path))
    yaml.dump(settings, open("copy.yaml", "w"))
    return expanded(settings)
"""
FIND = """
def find(name):
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)
"""
FIND_IN_TRY = """
def find(name):
    try:
        module, last = name.rsplit(".", 1)
        found = getattr(importlib.import_module(module), last)
    except (ValueError, ImportError, AttributeError) as error:
        raise ImportError(name) from error
    return found
"""
REST = """
parser = argparse.ArgumentParser()
parser.add_argument("--config", default="conf/train.yaml")
settings = read(parser.parse_args().config)["model"]
model = find(settings["name"])(**settings["options"])
"""
BUG = """
optimizer = torch.optim.AdamW(model.parameters())
fully_shard(model)
model(torch.randn(2, 8)).sum().backward()
optimizer.step()
"""


def run(folder: Path, body: str) -> Program:
    (folder / "conf").mkdir()
    (folder / "conf" / "train.yaml").write_text(YAML)
    return program(folder, body, header=HEAD, nets__wide=NETS)


@pytest.mark.parametrize("read", [READ, READ_PATH, READ_EXPANDED], ids=["file", "path", "expanded"])
@pytest.mark.parametrize("find", [FIND, FIND_IN_TRY], ids=["partition", "split"])
def test_the_class_is_one_candidate(tmp_path: Path, read: str, find: str) -> None:
    found = run(tmp_path, read + find + REST + BUG)
    assert findings(found, "FSDP103")
    built = [any(trace.of(ModuleBuilt)) for trace in found.traces]
    assert set(built) == {True, False}, "the file may name another class"


def test_runs_with_other_branches_choose_the_class_too(tmp_path: Path) -> None:
    shard = "if args.whole:\n    pass\nelse:\n    fully_shard(model)"
    body = READ + FIND + REST.replace("settings =", "args = parser.parse_args()\nsettings =")
    found = run(tmp_path, f"{body}\n{shard}\ntorch.optim.AdamW(model.parameters())")
    first = next(trace for trace in found.traces if any(trace.of(Sharded)))
    assert any(first.of(ModuleBuilt))


@pytest.mark.parametrize("call", ["split()", "split('.')", "rsplit('.', 2)", "partition(1)"])
def test_the_number_of_parts_is_not_known(tmp_path: Path, call: str) -> None:
    found = run(tmp_path, f'{READ}\nread("conf/train.yaml")["model"]["name"].{call}\n')
    assert not found.problems
