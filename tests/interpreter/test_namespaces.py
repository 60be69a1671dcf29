"""Objects of `SimpleNamespace` and `argparse.Namespace`, which have no class statement."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.interpreter import load
from fsdplint.trace import Sharded

PROGRAM = """\
import argparse
import types

import torch.nn as nn
from torch.distributed.fsdp import fully_shard

config = {0}
model = nn.Linear(4, 4)
if {1}:
    fully_shard(model)
"""


@pytest.mark.parametrize("made", ["types.SimpleNamespace(width=4)", "argparse.Namespace(width=4)"])
@pytest.mark.parametrize(
    "test", ['getattr(config, "plain", None) is None', 'not hasattr(config, "plain")']
)
def test_an_attribute_that_a_namespace_lacks(tmp_path: Path, made: str, test: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(made, test), encoding="utf-8")
    program = load([path])
    assert not program.problems
    assert any(True for trace in program.traces for _ in trace.of(Sharded))


def test_the_name_of_a_file_and_of_its_package(tmp_path: Path) -> None:
    inner = tmp_path / "lib" / "inner"
    inner.mkdir(parents=True)
    names = 'NAMES = f"{__name__} {__package__}"\n'
    for file in (inner / "part.py", inner / "__init__.py", inner.parent / "__init__.py"):
        file.write_text(names)
    body = """
        import lib, lib.inner, lib.inner.part, sys
        from torch import nn
        from torch.distributed.fsdp import fully_shard

        part = sys.modules["lib.inner.part"]
        if lib.NAMES == "lib lib" and lib.inner.NAMES == "lib.inner lib.inner":
            if part.NAMES == "lib.inner.part lib.inner" and __name__ == "__main__":
                fully_shard(nn.Linear(2, 2))
    """
    found = program(tmp_path, body)
    assert [len(list(trace.of(Sharded))) for trace in found.traces] == [1]
