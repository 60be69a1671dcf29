"""Objects that their settings build: `Config.build()`, `__init_subclass__`, copies of dataclasses."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import OptimizerBuilt, Sharded

HEAD = """\
import dataclasses
from dataclasses import asdict, dataclass, field, fields, replace
from typing import ClassVar

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Configurable:
    @dataclass(kw_only=True)
    class Config:
        _owner: ClassVar[type | None] = None

        def build(self, **kwargs):
            if self._owner is None:
                raise NotImplementedError
            if not kwargs:
                return self._owner(config=replace(self))
            overlap = {one.name for one in fields(self)} & kwargs.keys()
            if overlap:
                raise ValueError(overlap)
            return self._owner(config=replace(self), **kwargs)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "Config" in cls.__dict__:
            config = cls.__dict__["Config"]
            if issubclass(config, Configurable.Config):
                config._owner = cls


"""
TRAINER = """
class Trainer:
    def __init__(self, config=None, model=None):
        self.config = config
        self.model = model if model is not None else nn.Linear(8, 8)

    def run(self):
        optimizer = torch.optim.Adam(self.model.parameters())
        fully_shard(self.model)
        self.model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
"""
BUILDS = {
    "own method": """
class Built(Trainer):
    @dataclass
    class Config:
        lr: float = 0.1
        def build(self):
            return Built(self)
Built.Config().build().run()
""",
    "auto-wired": """
class Built(Trainer, Configurable):
    @dataclass(kw_only=True)
    class Config(Configurable.Config):
        lr: float = 0.1
Built.Config().build().run()
""",
    "auto-wired with objects": """
class Built(Trainer, Configurable):
    @dataclass(kw_only=True)
    class Config(Configurable.Config):
        lr: float = 0.1
Built.Config(lr=0.2).build(model=nn.Linear(8, 8)).run()
""",
    "nested": """
class Built(Trainer, Configurable):
    @dataclass(kw_only=True)
    class Config(Configurable.Config):
        lr: float = 0.1
@dataclass
class Job:
    trainer: Built.Config = field(default_factory=Built.Config)
Job().trainer.build().run()
""",
    "registered subclasses": """
class Base:
    registry = {}
    def __init_subclass__(cls, name, **kwargs):
        super().__init_subclass__(**kwargs)
        Base.registry[name] = cls
class Built(Trainer, Base, name="built"):
    pass
Base.registry["built"]().run()
""",
    "arguments of a dataclass": """
@dataclass
class Options:
    config: str = "a"
Trainer(**asdict(Options())).run()
""",
}


@pytest.mark.parametrize("build", BUILDS)
def test_a_built_object_is_followed(tmp_path: Path, build: str) -> None:
    found = program(tmp_path, TRAINER + BUILDS[build], header=HEAD)
    assert findings(found, "FSDP103")
    assert all(trace.entry for trace in found.traces if list(trace.of(Sharded)))
    assert list(events(found, OptimizerBuilt))


def test_a_copy_has_the_other_fields(tmp_path: Path) -> None:
    body = """
        @dataclass
        class Job:
            model: object = None
            size: int = 1

        job = replace(Job(nn.Linear(8, 8)), size=2)
        fully_shard(job.model)
    """
    (trace,) = program(tmp_path, body, header=HEAD).traces
    (sharded,) = trace.of(Sharded)
    assert trace.modules[sharded.module].class_name == "Linear"


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("{'a', 'b'} & {'b'}", True),
        ("{'a'} & {'b'}", False),
        ("{'a'} - {'a'}", False),
        ("{'a'} - {'b'}", True),
        ("{'a'} ^ {'a'}", False),
        ("{'a'} ^ {'b'}", True),
        ("'Config' in Configurable.__dict__", True),
        ("issubclass(Part, Configurable)", True),
        ("issubclass(Part, nn.Module)", True),
        ("issubclass(Configurable, Part)", False),
    ],
)
def test_what_is_known_of_sets_and_classes(tmp_path: Path, expression: str, holds: bool) -> None:
    body = f"""
class Part(nn.Module, Configurable):
    pass
model = nn.Linear(8, 8)
if {expression}:
    fully_shard(model)
"""
    found = program(tmp_path, body, header=HEAD)
    assert [bool(list(trace.of(Sharded))) for trace in found.traces if trace.entry] == [holds]
