"""An object whose attribute is read is not None: a later test for that decides nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.interpreter import Program
from fsdplint.trace import Sharded

PROGRAM = """
import argparse
from settings import Settings

class Trainer:
    def __init__(self, config):
        self.config = config
        if config.model is None and config.path:
            config.model = Settings.from_file(config.path)
        if config.model is not None:
            fully_shard(Net())

config = argparse.ArgumentParser().parse_args()
config.model = Settings.from_file("model.json")
{read}
Trainer(config)
"""


def shards_at_first(found: Program) -> bool:
    return any(found.traces[0].of(Sharded))


@pytest.mark.parametrize("read", ["print(config.model.width)", "config.model.validate()"])
def test_an_object_that_was_read_from_is_not_none(tmp_path: Path, read: str) -> None:
    assert shards_at_first(program(tmp_path, PROGRAM.format(read=read)))


@pytest.mark.parametrize(
    "read", ["print(getattr(config.model, 'width', 0))", "print(config.model)"]
)
def test_other_uses_say_nothing(tmp_path: Path, read: str) -> None:
    assert not shards_at_first(program(tmp_path, PROGRAM.format(read=read)))


def test_a_read_behind_a_test_keeps_its_other_outcome(tmp_path: Path) -> None:
    body = """
import argparse
args = argparse.ArgumentParser().parse_args()
model = Net()
if args.mesh is not None:
    print(args.mesh.shape)
    fully_shard(model)
else:
    FSDP(model)
"""
    found = program(tmp_path, body)
    assert {len(list(trace.of(Sharded))) for trace in found.traces} == {0, 1}
