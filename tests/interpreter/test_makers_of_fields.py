"""Decorators that give a class the constructor of its annotated fields, by any name."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Sharded

HEAD = """
import dataclasses
from dataclasses import dataclass as record

import attrs
from elsewhere import settings_of
from pydantic.dataclasses import dataclass as checked

REGISTRY = {}

def config(cls):
    cls = dataclasses.dataclass(cls)
    REGISTRY[cls.__name__] = cls
    return cls

def named(name):
    def register(cls):
        REGISTRY[name] = record(frozen=True)(cls)
        return REGISTRY[name]
    return register

frozen = dataclasses.dataclass(frozen=True)

@record
class Base:
    shards: bool = True
"""
MAIN = """
settings = Settings(shards=False)
model = nn.Linear(4, 4)
if settings.shards:
    fully_shard(model)
"""


@pytest.mark.parametrize(
    "decorator",
    [
        "@record",
        "@record(slots=True)",
        "@config",
        "@named('a')",
        "@frozen",
        "@checked",
        "@attrs.define",
        "@settings_of('a')",
    ],
)
def test_a_field_has_the_value_of_the_call(tmp_path: Path, decorator: str) -> None:
    made = f"{decorator}\nclass Settings:\n    shards: bool = True\n"
    assert not list(events(program(tmp_path, HEAD + made + MAIN), Sharded))


@pytest.mark.parametrize(
    "made",
    [
        "class Settings(Base):\n    pass\n",
        "@record\nclass Settings(Base):\n    size: int = 4\n",
        "class Settings(Base):\n    def __init__(self, shards):\n        super().__init__(shards)\n",
    ],
)
def test_a_field_of_a_base_class(tmp_path: Path, made: str) -> None:
    assert not list(events(program(tmp_path, HEAD + made + MAIN), Sharded))


def test_annotations_of_a_plain_class_are_no_fields(tmp_path: Path) -> None:
    made = (
        "class Settings:\n    shards: bool = True\n    def __init__(self, shards):\n        pass\n"
    )
    assert list(events(program(tmp_path, HEAD + made + MAIN), Sharded))
