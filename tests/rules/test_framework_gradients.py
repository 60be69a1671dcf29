"""Gradients of models that a framework shards: set to zero too early, or never synchronised."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

FABRIC = """\
import sys

import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies import FSDPStrategy
from torch import nn


def main(strategy, checkpoint=None):
    fabric = Fabric(devices=4, strategy=strategy)
    fabric.launch()
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    SETUP
    if checkpoint is not None:
        LOAD
    for step, x in enumerate(torch.randn(64, 4, 8)):
        ready = (step + 1) % 4 == 0
        with fabric.no_backward_sync(SWITCH):
            fabric.backward(model(x).sum() / 4)
        if ready:
            UPDATE


main(STRATEGY, *sys.argv[1:])
"""
RIGHT = {
    "SETUP": "model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters()))",
    "LOAD": 'fabric.load(checkpoint, {"model": model, "optimizer": optimizer})',
    "SWITCH": "model, enabled=not ready",
    "UPDATE": "optimizer.step(); optimizer.zero_grad()",
    "STRATEGY": "FSDPStrategy()",
}
APART = (
    "model = fabric.setup_module(model); "
    "optimizer = fabric.setup_optimizers(torch.optim.Adam(model.parameters()))"
)
EARLY = "optimizer.zero_grad(); optimizer.step()"

ACCELERATE = """\
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch import nn

accelerator = Accelerator(OPTIONS)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
for x in torch.randn(64, 4, 8):
    with accelerator.accumulate(model):
        accelerator.backward(model(x).sum())
        UPDATE
"""


def found(folder: Path, code: str, template: str, **parts: str) -> int:
    text = template
    for name, part in parts.items():
        text = text.replace(name, part)
    main = folder / "main.py"
    main.write_text(text)
    rule = rule_by_code(code)
    assert rule is not None
    return len(check(load([main]), [rule()]))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"SETUP": APART},
        {"LOAD": "pass"},
        {"STRATEGY": '"fsdp"'},
        {"LOAD": 'state = {"model": model}; fabric.load(checkpoint, state)'},
    ],
)
def test_zeroed_before_the_step_of_fabric(parts: dict[str, str], tmp_path: Path) -> None:
    assert found(tmp_path, "FSDP418", FABRIC, **{**RIGHT, "UPDATE": EARLY, **parts})
    assert not found(tmp_path, "FSDP418", FABRIC, **{**RIGHT, **parts})
    other = {**RIGHT, "UPDATE": EARLY, **parts, "STRATEGY": '"ddp"'}
    assert not found(tmp_path, "FSDP418", FABRIC, **other)


@pytest.mark.parametrize(
    "load_states",
    [
        RIGHT["LOAD"],
        "fabric.load(checkpoint, state={'model': model})",
        "state = {'model': model, 'step': 0}; rest = fabric.load(checkpoint, state)",
    ],
)
def test_never_synchronised_by_fabric(load_states: str, tmp_path: Path) -> None:
    parts = {**RIGHT, "LOAD": load_states}
    assert found(tmp_path, "FSDP403", FABRIC, **{**parts, "SWITCH": "model"})
    assert found(tmp_path, "FSDP403", FABRIC, **{**parts, "SWITCH": "model, True"})
    assert not found(tmp_path, "FSDP403", FABRIC, **parts)


def test_a_counter_that_a_checkpoint_replaces(tmp_path: Path) -> None:
    """What a state has beside models is unknown after a load."""
    load = "state = {'model': model, 'pause': True}; fabric.load('last.ckpt', state)"
    parts = {**RIGHT, "LOAD": "pass", "SWITCH": "model, enabled=state['pause']"}
    setup = RIGHT["SETUP"].replace(";", "")
    assert not found(tmp_path, "FSDP403", FABRIC, **{**parts, "SETUP": f"{setup}; {load}"})
    kept = load.partition(";")[0]
    assert found(tmp_path, "FSDP403", FABRIC, **{**parts, "SETUP": f"{setup}; {kept}"})


@pytest.mark.parametrize("plugin", ["", "use_orig_params=True", "fsdp_version=2"])
def test_zeroed_before_the_step_of_accelerate(plugin: str, tmp_path: Path) -> None:
    options = f"fsdp_plugin=FullyShardedDataParallelPlugin({plugin})"
    assert found(tmp_path, "FSDP418", ACCELERATE, OPTIONS=options, UPDATE=EARLY)
    assert not found(tmp_path, "FSDP418", ACCELERATE, OPTIONS=options, UPDATE=RIGHT["UPDATE"])
    assert not found(tmp_path, "FSDP418", ACCELERATE, OPTIONS="", UPDATE=EARLY)
