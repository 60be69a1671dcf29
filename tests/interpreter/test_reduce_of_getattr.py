"""`functools.reduce(getattr, names, module)` reads a part of a module, whatever the names are."""

from __future__ import annotations

from pathlib import Path

from fsdplint.interpreter import load
from fsdplint.trace import Escaped, Sharded

PROGRAM = """\
import functools
import library
import sys
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
part = functools.reduce({function}, sys.argv[1].split("."), model)
fully_shard(model)
"""


def escaped(path: Path, function: str) -> list[str]:
    path.write_text(PROGRAM.replace("{function}", function))
    (trace,) = load([path]).traces
    assert [trace.modules[event.module].class_name for event in trace.of(Sharded)] == ["Sequential"]
    return [trace.modules[event.module].class_name for event in trace.of(Escaped)]


def test_a_read_of_a_part_leaves_the_model_in_sight(tmp_path: Path) -> None:
    assert escaped(tmp_path / "train.py", "getattr") == []


def test_another_function_may_do_anything_with_the_model(tmp_path: Path) -> None:
    assert escaped(tmp_path / "train.py", "library.read") == ["Sequential"]
