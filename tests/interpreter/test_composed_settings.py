"""Settings that hydra composes: each file of a group is one configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.interpreter import Program
from fsdplint.trace import OptimizerBuilt, Sharded

HEAD = """\
import sys
import hydra
import nets
import torch
from hydra.utils import instantiate
from torch import nn
from torch.distributed.fsdp import fully_shard
"""
NETS = """
from torch import nn
class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
class Deep(Wide):
    pass
class Other(Wide):
    pass
"""
MAIN = """
@hydra.main(config_path="conf", config_name="train", version_base=None)
def main(cfg):
    model = MODEL
    fully_shard(model)
    torch.optim.AdamW(model.parameters(), lr=cfg.lr)

main()
"""
BY_NAME = "getattr(nets, cfg.model.name)(8)"
WIDE, DEEP = "_target_: nets.Wide\nwidth: 8\n", "_target_: nets.Deep\nwidth: 8\n"


def composed(root: Path, model: str = "instantiate(cfg.model)", **files: str) -> Program:
    for name, text in files.items():
        path = root / "conf" / (name.replace("__", "/") + ".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return program(root, MAIN.replace("MODEL", model), header=HEAD, nets=NETS)


def classes(found: Program) -> set[str]:
    return {
        trace.modules[event.module].class_name
        for trace in found.traces
        for event in trace.of(Sharded)
    }


@pytest.mark.parametrize(
    "defaults",
    [
        "- model: wide\n- _self_",
        "- _self_\n- model: wide.yaml",
        "- optional model: ???",
        "- /model: deep",
        "- base",
        "- net@model: wide",
    ],
)
def test_each_file_of_a_group_is_a_configuration(tmp_path: Path, defaults: str) -> None:
    group = "net" if "net@" in defaults else "model"
    files = {f"{group}__wide": WIDE, f"{group}__deep": DEEP, "base": "defaults:\n- model: wide\n"}
    train = "defaults:\n" + defaults + "\nlr: 0.1\n"
    found = composed(tmp_path, train=train, **files)
    assert {"Wide", "Deep"} <= classes(found)
    assert "Other" not in classes(found)


def test_a_group_of_a_group(tmp_path: Path) -> None:
    files = {
        "train": "defaults:\n- setup: small\nlr: 0.1\n",
        "setup__small": "defaults:\n- model: wide\n",
        "setup__model__wide": WIDE,
        "setup__model__deep": DEEP,
    }
    found = composed(tmp_path, "instantiate(cfg.setup.model)", **files)
    assert {"Wide", "Deep"} <= classes(found)


def test_a_file_for_the_whole(tmp_path: Path) -> None:
    files = {
        "train": "defaults:\n- experiment: one\nlr: 0.1\n",
        "experiment__one": "# @package _global_\nmodel:\n  _target_: nets.Wide\n  width: 8\n",
    }
    assert "Wide" in classes(composed(tmp_path, **files))


def test_the_names_that_files_offer_choose_the_members(tmp_path: Path) -> None:
    files = {
        "train": "defaults:\n- model: ???\nlr: 0.1\n",
        "model__wide": "name: Wide\n",
        "model__deep": "name: Deep\n",
    }
    found = classes(composed(tmp_path, BY_NAME, **files))
    assert {"Wide", "Deep"} <= found
    assert "Other" not in found


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    train = "defaults:\n- model: none\n- missing: file\n- 1\n- [a]\n- x:\n    y: 1\nlr: 0.1\n"
    found = composed(tmp_path, train=train, model__list="- 1\n", model__broken="a: [\n")
    assert [event for trace in found.traces for event in trace.of(OptimizerBuilt)]


def test_files_that_name_each_other(tmp_path: Path) -> None:
    files = {"train": "defaults:\n- other\nlr: 0.1\n", "other": "defaults:\n- train\n"}
    assert classes(composed(tmp_path, "nets.Wide(8)", **files)) == {"Wide"}


RECORDS = """
from dataclasses import dataclass
import importlib
import pydantic
from omegaconf import OmegaConf
class Part(pydantic.BaseModel):
    name: str
class Config(pydantic.BaseModel):
    model: Part
    lr: float = 0.5
@dataclass
class Plain:
    model: object
    lr: float = 0.5
def load(path):
    module, name = path.split("@")
    return getattr(importlib.import_module("nets." + module), name)
"""


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("Config(**OmegaConf.to_container(cfg, resolve=True))", "config.model.name"),
        ("Config(**cfg)", "config.model.name"),
        ("Plain(**OmegaConf.to_container(cfg))", "config.model.name"),
        ("Plain(**OmegaConf.to_container(cfg))", 'config.model["name"]'),
        ("OmegaConf.to_container(cfg)", 'config["model"]["name"]'),
    ],
)
@pytest.mark.parametrize("folder", ["", "deep."])
def test_an_object_has_the_settings_that_it_is_made_of(
    tmp_path: Path, config: str, name: str, folder: str
) -> None:
    main = MAIN.replace("    model = MODEL", f"    config = {config}\n    model = load({name})(8)")
    place = tmp_path / "nets" / folder.rstrip(".")
    place.mkdir(parents=True)
    (place / "wide.py").write_text(NETS)
    conf = tmp_path / "conf" / "model"
    conf.mkdir(parents=True)
    (conf.parent / "train.yaml").write_text("defaults:\n- model: wide\n- _self_\nlr: 0.1\n")
    (conf / "wide.yaml").write_text(f"name: {folder}wide@Wide\n")
    header = HEAD.replace("import nets\n", "") + RECORDS
    found = program(tmp_path, main, header=header)
    assert "Wide" in classes(found)
