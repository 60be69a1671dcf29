"""FSDP703 and FSDP707 without a run: what the interpreter knows of dimensions and dtypes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEADER = """\
import math
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")

"""

SCALED = """\
class Scaled(nn.Module):
    def __init__(self, start=0.07, shape=(1,)):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        {parameter}

    def forward(self, x):
        return self.linear(x)

model = nn.Sequential(Scaled(), nn.Linear(8, 8))
{sharding}
"""


def found(tmp_path: Path, code: str, text: str) -> list[str]:
    file = tmp_path / "main.py"
    file.write_text(HEADER + textwrap.dedent(text))
    rule = rule_by_code(code)
    assert rule is not None
    return [one.message for one in check(load([file]), [rule()])]


def scalars(tmp_path: Path, parameter: str, sharding: str = "fully_shard(model)") -> list[str]:
    return found(tmp_path, "FSDP707", SCALED.format(parameter=parameter, sharding=sharding))


@pytest.mark.parametrize(
    "value",
    [
        "torch.tensor(0.1)",
        "torch.tensor(start)",
        "torch.tensor(-math.log(start))",
        "torch.ones([]) * np.log(1 / start)",
        "torch.tensor(1 / 0.07).log()",
        "torch.zeros(())",
        "torch.full((), 2.0)",
        "torch.tensor(2 ** 0.5, dtype=torch.float32)",
        "data=torch.log(torch.tensor(float(start)))",
        "torch.randn(size=())",
        "torch.tensor(1.0), requires_grad=False",
    ],
)
def test_a_scalar_in_a_unit(tmp_path: Path, value: str) -> None:
    (message,) = scalars(tmp_path, f"self.scale = nn.Parameter({value})")
    assert "`0.scale` of `Sequential` is a scalar" in message


@pytest.mark.parametrize(
    "parameter",
    [
        "self.register_parameter('scale', nn.Parameter(torch.tensor(0.1)))",
        "setattr(self, 'scale', nn.Parameter(torch.tensor(0.1)))",
    ],
)
def test_a_scalar_that_a_function_registers(tmp_path: Path, parameter: str) -> None:
    assert len(scalars(tmp_path, parameter)) == 1


@pytest.mark.parametrize(
    "value",
    [
        "torch.tensor([0.1])",
        "torch.ones(1)",
        "torch.full(shape, 0.1)",
        "torch.ones(shape) * start",
        "torch.tensor(0.1).reshape(1)",
        "torch.tensor(0.1)[None]",
        "torch.tensor(0.1) * torch.ones(4)",
        "torch.tensor(np.load('start.npy'))",
    ],
)
def test_a_parameter_with_a_dimension(tmp_path: Path, value: str) -> None:
    assert scalars(tmp_path, f"self.scale = nn.Parameter({value})") == []


@pytest.mark.parametrize(
    "sharding",
    [
        "fully_shard(model[0].linear)",
        "fully_shard(model, ignored_params={model[0].scale})",
        "model[0].scale = nn.Parameter(torch.ones(1))\nfully_shard(model)",
        "try:\n    fully_shard(model)\nexcept ValueError:\n    pass",
    ],
)
def test_a_scalar_that_no_unit_takes(tmp_path: Path, sharding: str) -> None:
    parameter = "self.scale = nn.Parameter(torch.tensor(0.1))"
    assert scalars(tmp_path, parameter, sharding) == []


MIXED = """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8{options})
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.linear(self.norm(x))

model = nn.Sequential(Block(), Block())
{change}
for block in model:
    fully_shard(block)
fully_shard(model)
model(torch.ones(2, 8)).sum().backward()
"""


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (", dtype=torch.bfloat16", ""),
        ("", "model[0].norm.double()"),
        ("", "model.to(torch.bfloat16)\nfor block in model:\n    block.norm.to(torch.float32)"),
        (
            "",
            "model.half()\nfor m in model.modules():\n    if isinstance(m, nn.LayerNorm): m.float()",
        ),
        (", dtype=torch.half", "model.to('cpu')"),
    ],
)
def test_two_dtypes_in_a_unit(tmp_path: Path, options: str, change: str) -> None:
    messages = found(tmp_path, "FSDP703", MIXED.format(options=options, change=change))
    assert len(messages) == 1
    assert "`norm.weight` in" in messages[0]


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ("", "model.bfloat16()"),
        (", dtype=torch.bfloat16", "model.to(torch.float32)"),
        (", dtype=torch.bfloat16", "for block in model:\n    fully_shard(block.norm)"),
        (", dtype=torch.bfloat16", "for block in model:\n    block.norm.requires_grad_(False)"),
        (", dtype=torch.bfloat16", "from library import cast\ncast(model)"),
        (", dtype=torch.bfloat16", "from settings import DTYPE\nmodel.to(DTYPE)"),
        (", dtype=torch.bfloat16", "for p in model.parameters():\n    p.data = p.data.float()"),
        (", dtype=torch.float32", "torch.set_default_dtype(torch.bfloat16)"),
    ],
)
def test_one_dtype_in_each_unit(tmp_path: Path, options: str, change: str) -> None:
    assert found(tmp_path, "FSDP703", MIXED.format(options=options, change=change)) == []


def test_a_default_dtype_that_is_out_of_sight(tmp_path: Path) -> None:
    text = MIXED.format(options=", dtype=torch.bfloat16", change="").replace(
        "model = nn.Sequential(Block(), Block())",
        "from library import default_dtype\n"
        "with default_dtype(torch.bfloat16):\n    model = nn.Sequential(Block(), Block())",
    )
    assert found(tmp_path, "FSDP703", text) == []
