"""Settings in YAML and JSON files: classes that they name are followed, values stay settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

from fsdplint.interpreter import Program
from fsdplint.trace import OptimizerBuilt, Sharded

HEAD = """\
import json
import hydra
import torch
import yaml
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn
from torch.distributed.fsdp import fully_shard
"""
YAML = """\
model:
  _target_: nets.Wide
  width: 8
optimizer:
  _target_: torch.optim.AdamW
  lr: 0.1
blocks:
  _target_: nets.Wide
  _partial_: true
trainer:
  fsdp: true
"""
NETS = """
from torch import nn
class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
"""
READS = {
    "omegaconf": ('cfg = OmegaConf.load("conf/train.yaml")', "instantiate(cfg.model)"),
    "items": ('cfg = OmegaConf.load("conf/train.yaml")', 'instantiate(cfg["model"])'),
    "partial": ('cfg = OmegaConf.load("conf/train.yaml")', "instantiate(cfg.blocks)(width=8)"),
    "yaml": (
        'with open("conf/train.yaml") as file:\n    cfg = OmegaConf.create(yaml.safe_load(file))',
        'instantiate(yaml.safe_load(open("conf/train.yaml"))["model"])',
    ),
    "json": ("", 'instantiate(json.load(open("conf/train.json"))["model"])'),
}


def load_with_settings(folder: Path, body: str) -> Program:
    (folder / "conf").mkdir()
    (folder / "conf" / "train.yaml").write_text(YAML)
    (folder / "conf" / "train.json").write_text('{"model": {"_target_": "nets.Wide", "width": 8}}')
    return program(folder, body, header=HEAD, nets=NETS)


def classes(found: Program) -> set[str]:
    return {
        trace.modules[event.module].class_name
        for trace in found.traces
        for event in trace.of(Sharded)
    }


@pytest.mark.parametrize("read", READS)
def test_a_class_that_a_file_names_is_one_candidate(tmp_path: Path, read: str) -> None:
    before, model = READS[read]
    found = load_with_settings(tmp_path, f"{before}\nmodel = {model}\nfully_shard(model)\n")
    assert "Wide" in classes(found)
    assert classes(found) != {"Wide"}, "the file may name another class"


def test_the_settings_of_hydra(tmp_path: Path) -> None:
    body = """
        @hydra.main(config_path="conf", config_name="train", version_base=None)
        def main(cfg):
            model = instantiate(cfg.model)
            optimizer = instantiate(cfg.optimizer, params=model.parameters())
            fully_shard(model)
            model(torch.randn(2, 8)).sum().backward()
            optimizer.step()

        main()
    """
    found = load_with_settings(tmp_path, body)
    assert "Wide" in classes(found)
    assert findings(found, "FSDP103")


def test_an_optimizer_that_a_file_names(tmp_path: Path) -> None:
    body = """
        cfg = OmegaConf.load("conf/train.yaml")
        model = nn.Linear(8, 8)
        fully_shard(model)
        optimizer = instantiate(cfg.optimizer, model.parameters())
    """
    found = load_with_settings(tmp_path, body)
    (built,) = [event for trace in found.traces for event in trace.of(OptimizerBuilt)]
    assert built.modules


def test_a_value_in_a_file_is_a_setting(tmp_path: Path) -> None:
    body = """
        cfg = OmegaConf.load("conf/train.yaml")
        model = nn.Linear(8, 8)
        if cfg.trainer.fsdp:
            fully_shard(model)
        torch.optim.AdamW(model.parameters())
    """
    found = load_with_settings(tmp_path, body)
    assert {bool(list(trace.of(Sharded))) for trace in found.traces} == {True, False}


@pytest.mark.parametrize("made", ["@dataclass\nclass Job", "class Job(pydantic.BaseModel)"])
def test_the_fields_of_an_object_that_a_file_sets(tmp_path: Path, made: str) -> None:
    body = f"""
import pydantic
from dataclasses import dataclass
{made}:
    model: dict
    width: int = 8
job = Job(**yaml.safe_load(open("conf/train.yaml")))
fully_shard(instantiate(job.model))
"""
    assert "Wide" in classes(load_with_settings(tmp_path, body))


def test_a_file_that_is_missing_or_no_mapping(tmp_path: Path) -> None:
    body = """
        one = OmegaConf.load("conf/missing.yaml")
        two = OmegaConf.load("conf/list.yaml")
        model = instantiate(one.model)
        fully_shard(model)
        fully_shard(instantiate(two.model))
    """
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "list.yaml").write_text("- 1\n- 2\n")
    found = program(tmp_path, body, header=HEAD)
    assert not found.problems and len(found.traces) == 1


def test_a_file_names_one_of_the_classes_of_a_module(tmp_path: Path) -> None:
    """The command line may name another class than the file."""
    body = """
        import nets

        @hydra.main(config_path="conf", config_name="train", version_base=None)
        def main(cfg):
            fully_shard(getattr(nets, cfg.net)(8))

        main()
    """
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "train.yaml").write_text("net: Wide\n")
    deep = "\nclass Deep(Wide):\n    pass\n"
    found = program(tmp_path, body, header=HEAD, nets=NETS + deep)
    assert classes(found) >= {"Wide", "Deep"}
