"""The bound of a clipping is a number, in whatever form a setting has it: infinity clips nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import argparse
import math
import os
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--text", default="VALUE")
parser.add_argument("--number", type=float, default="VALUE")
args = parser.parse_args()


@dataclass
class Options:
    limit: str = "VALUE"


options = Options()
net = fully_shard(nn.Linear(8, 8))
engine = torch.optim.SGD(net.parameters(), lr=0.1)
for number in range(4):
    engine.zero_grad()
    nn.utils.clip_grad_norm_(net.parameters(), BOUND)
    net(torch.randn(2, 8)).sum().backward()
    engine.step()
"""
FORMS = {
    "a number": 'float("VALUE")',
    "a field": "float(options.limit)",
    "a field as a text": "options.limit",
    "a variable of the environment": 'float(os.environ.get("LIMIT", "VALUE"))',
    "a variable of the environment, by getenv": 'float(os.getenv("LIMIT", "VALUE"))',
    "an argument": "args.number",
    "an argument as a text": "float(args.text)",
}


def findings(tmp_path: Path, bound: str, value: str) -> int:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("BOUND", bound).replace("VALUE", value))
    rule = rule_by_code("FSDP432")
    assert rule is not None
    return len(list(check(load([path]), [rule()])))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", ["inf", "Infinity"])
def test_an_infinite_bound_only_measures(tmp_path: Path, form: str, value: str) -> None:
    assert findings(tmp_path, FORMS[form], value) == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_finite_bound_clips(tmp_path: Path, form: str) -> None:
    assert findings(tmp_path, FORMS[form], "1.0") == 1


@pytest.mark.parametrize(("bound", "found"), [("1e9", 0), ("10000000", 0), ("1e3", 1)])
def test_a_bound_that_no_norm_reaches_only_measures(tmp_path: Path, bound: str, found: int) -> None:
    assert findings(tmp_path, bound, "") == found


def test_the_constant_of_a_library_only_measures(tmp_path: Path) -> None:
    assert findings(tmp_path, "math.inf", "") == 0


SCALED = """\
import json
import torch
import yaml
from omegaconf import OmegaConf
from torch import nn
from torch.distributed.fsdp import fully_shard
from library import read_settings

settings = READ
net = fully_shard(nn.Linear(8, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for _ in range(4):
    optimizer.zero_grad()
    scaler.scale(net(torch.randn(2, 8)).sum()).backward()
    nn.utils.clip_grad_norm_(net.parameters(), BOUND)
    scaler.step(optimizer)
    scaler.update()
"""


def of_scaled(tmp_path: Path, read: str, bound: str) -> int:
    path = tmp_path / "program.py"
    path.write_text(SCALED.replace("READ", read).replace("BOUND", bound))
    rule = rule_by_code("FSDP417")
    assert rule is not None
    return len(list(check(load([path]), [rule()])))


@pytest.mark.parametrize(
    "read",
    [
        'OmegaConf.merge(OmegaConf.load("a.yaml"), OmegaConf.from_cli())',
        'yaml.safe_load(open("a.yaml"))',
        'json.load(open("a.json"))["train"]',
        "read_settings()",
    ],
)
@pytest.mark.parametrize("bound", ["settings.clip", 'settings["clip"]', 'settings.get("clip")'])
def test_an_entry_of_settings_is_not_scaled(tmp_path: Path, read: str, bound: str) -> None:
    assert of_scaled(tmp_path, read, bound) == 1


@pytest.mark.parametrize(
    "bound",
    [
        "settings.clip * scaler.get_scale()",
        "scaler.get_scale()",
        "read_settings(scaler)",
        "limit(settings.clip)",
    ],
)
def test_a_bound_that_may_be_scaled(tmp_path: Path, bound: str) -> None:
    assert of_scaled(tmp_path, "read_settings()", bound) == 0
