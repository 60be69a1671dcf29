"""Settings in configuration objects of libraries, and in Python files that the command line names."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, events, program

from fsdplint.trace import OptimizerBuilt, Sharded

LAZY = """
from collections import abc
from omegaconf import DictConfig, ListConfig

class LazyCall:
    def __init__(self, target):
        self.target = target

    def __call__(self, **kwargs):
        kwargs["_target_"] = self.target
        return DictConfig(content=kwargs, flags={"allow_objects": True})

def instantiate(cfg, **more):
    if isinstance(cfg, ListConfig):
        return [instantiate(one) for one in cfg]
    if isinstance(cfg, abc.Mapping) and "_target_" in cfg:
        cfg = {key: instantiate(value) for key, value in cfg.items()}
        target = cfg.pop("_target_")
        return target(**cfg, **more)
    return cfg
"""
NETS = """
from torch import nn

class Tower(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layer = nn.Linear(width, width)
"""


@pytest.mark.parametrize(
    "make",
    [
        "from omegaconf import DictConfig\nmake = DictConfig",
        "from omegaconf import OmegaConf\nmake = OmegaConf.create",
        "from ml_collections import ConfigDict as make",
        "from easydict import EasyDict as make",
        "from munch import munchify as make",
    ],
)
def test_entries_are_attributes(tmp_path: Path, make: str) -> None:
    body = """
config = make({"parts": {"first": nn.Linear(8, 8), "rest": []}, "width": 8})
config.parts.second = nn.Embedding(8, config.width)
fully_shard(config.parts.first)
fully_shard(config["parts"]["second"])
for name, part in config.parts.items():
    if name == "second":
        fully_shard(part)
"""
    found = program(tmp_path, make + body)
    names = [class_of(found, one.module) for one in events(found, Sharded)]
    assert [name.rpartition(".")[2] for name in names] == ["Linear", "Embedding", "Embedding"]


def test_a_constant_of_a_configuration_is_a_default(tmp_path: Path) -> None:
    body = """
from omegaconf import OmegaConf
config = OmegaConf.create({"shard": False})
model = Net()
if config.shard:
    fully_shard(model)
"""
    assert list(events(program(tmp_path, body), Sharded))


def test_a_call_that_a_configuration_describes(tmp_path: Path) -> None:
    body = """
import copy
from lazy import LazyCall as L, instantiate
from nets import Tower

rates = L(torch.optim.AdamW)(lr=1e-3)
config = L(Tower)(width=16)
model = instantiate(config)
optimizer = instantiate(copy.deepcopy(rates), params=model.parameters())
fully_shard(model)
"""
    found = program(tmp_path, body, lazy=LAZY, nets=NETS)
    assert "Tower" in {class_of(found, one.module) for one in events(found, Sharded)}
    assert {one.class_name for one in events(found, OptimizerBuilt)} == {"AdamW"}


SETTINGS = """
import attrs
from lazy import LazyCall as L
from nets import Tower

@attrs.define
class Settings:
    model: object = attrs.field(factory=lambda: L(Tower)(width=8))
    fsdp: bool = False

def create_settings():
    settings = Settings()
    settings.fsdp = True
    return settings
"""
NAMED = """
import argparse
import importlib
from lazy import instantiate

parser = argparse.ArgumentParser()
parser.add_argument("--settings")
name = parser.parse_args().settings.replace("/", ".").replace(".py", "")
settings = importlib.import_module(name).create_settings()
{override}
model = instantiate(settings.model)
if settings.fsdp:
    fully_shard(model)
"""
OVERRIDE = """
import attrs
from hydra import compose, initialize
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

def rebuild(reference, entries):
    if not attrs.has(type(reference)):
        return entries
    return type(reference)(**{
        field.name: rebuild(getattr(reference, field.name), entries[field.name])
        for field in attrs.fields(type(reference))
    })

store = ConfigStore.instance()
store.store(name="settings", node=DictConfig(content=attrs.asdict(settings)))
with initialize(version_base=None):
    entries = compose(config_name="settings", overrides=[])
settings = rebuild(settings, entries)
"""


@pytest.mark.parametrize("override", ["", OVERRIDE], ids=["as it is", "overridden"])
def test_settings_in_a_file_that_the_command_line_names(tmp_path: Path, override: str) -> None:
    files = {"lazy": LAZY, "nets": NETS, "small": SETTINGS}
    found = program(tmp_path, NAMED.replace("{override}", override), **files)
    assert "Tower" in {class_of(found, one.module) for one in events(found, Sharded)}


def test_no_module_has_the_member(tmp_path: Path) -> None:
    files = {"lazy": LAZY, "nets": NETS}
    found = program(tmp_path, NAMED.replace("{override}", ""), **files)
    assert "Tower" not in {class_of(found, one.module) for one in events(found, Sharded)}
