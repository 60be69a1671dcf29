"""A copy of settings is another object: what is set in it says nothing about the original."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEAD = """\
import copy
import sys
import torch
import torch.distributed as dist
import yaml
from dataclasses import dataclass, field
from pydantic import BaseModel
from torch import nn
from torch.distributed.fsdp import fully_shard


@dataclass
class Training:
    distributed: bool = True


@dataclass
class Settings:
    training: Training = field(default_factory=Training)


class Checked(BaseModel):
    training: dict


dist.init_process_group("nccl")
rank = dist.get_rank()
model = nn.Linear(8, 8)
fully_shard(model)
"""
MADE = {
    "objects": ("Settings()", "{}.training.distributed"),
    "dicts": ("{'training': {'distributed': True}}", "{}['training']['distributed']"),
    "a dict in an object": ("Checked(training={'distributed': True})", "{}.training['distributed']"),
    "a file": ("yaml.safe_load(open(sys.argv[1]))", "{}['training']['distributed']"),
}  # fmt: skip
BODY = """
settings = {made}
if rank == 0:
    own = {copy}
    {own} = False
    print(own)
if {read}:
    dist.barrier()
"""


def _codes(folder: Path, name: str, copied: str) -> list[str]:
    made, read = MADE[name]
    body = BODY.format(made=made, copy=copied, own=read.format("own"), read=read.format("settings"))
    return [one.rule.code for one in findings(program(folder, body, header=HEAD), "FSDP501")]


@pytest.mark.parametrize("name", MADE)
def test_a_deep_copy_leaves_the_original_as_it_is(tmp_path: Path, name: str) -> None:
    assert not _codes(tmp_path, name, "copy.deepcopy(settings)")


@pytest.mark.parametrize("name", ["objects", "dicts"])
def test_a_shallow_copy_has_the_parts_of_the_original(tmp_path: Path, name: str) -> None:
    assert _codes(tmp_path, name, "copy.copy(settings)")


def test_a_shallow_copy_has_its_own_entries(tmp_path: Path) -> None:
    body = """
        settings = {"distributed": True}
        if rank == 0:
            own = copy.copy(settings)
            own["distributed"] = False
            print(own)
        if settings["distributed"]:
            dist.barrier()
    """
    assert not list(findings(program(tmp_path, body, header=HEAD), "FSDP501"))


OBJECTS = """
class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def shard(self):
        fully_shard(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
first = Trainer(nn.Linear(4, 4))
second = copy.{copy}(first)
first.shard()
second.shard()
"""
ONE_OBJECT = """
class State:
    sharded = False
    def __deepcopy__(self, memo):
        return self
state = State()
other = copy.deepcopy(state)
state.sharded = True
if not other.sharded:
    fully_shard(model)
"""


def test_the_deep_copy_of_an_object_has_its_own_model(tmp_path: Path) -> None:
    deep = program(tmp_path, OBJECTS.format(copy="deepcopy"), header=HEAD)
    assert not list(findings(deep, "FSDP111"))
    shallow = program(tmp_path, OBJECTS.format(copy="copy"), header=HEAD)
    assert list(findings(shallow, "FSDP111"))


def test_a_class_may_copy_its_objects_in_its_own_way(tmp_path: Path) -> None:
    assert not list(findings(program(tmp_path, ONE_OBJECT, header=HEAD), "FSDP111"))
