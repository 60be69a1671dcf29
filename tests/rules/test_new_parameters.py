"""FSDP113 on parameters that a program puts into a sharded module."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
model = nn.Linear(8, 8)
fully_shard(model, mesh=mesh)
model.scale = nn.Parameter(torch.ones(8))
{change}
optimizer = torch.optim.SGD({given}, lr=0.1)
(model(torch.randn(2, 8)) * model.scale).sum().backward()
{before_step}
optimizer.step()
"""


def found(
    tmp_path: Path,
    change: str = "pass",
    given: str = "model.parameters()",
    before_step: str = "pass",
    code: str = "FSDP113",
) -> bool:
    path = tmp_path / "main.py"
    path.write_text(PROGRAM.format(change=change, given=given, before_step=before_step))
    rule = rule_by_code(code)
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "given",
    [
        "model.parameters()",
        "[p for p in model.parameters() if p.requires_grad]",
        "[{'params': list(model.parameters())}]",
    ],
)
def test_a_new_parameter_is_trained(tmp_path: Path, given: str) -> None:
    assert found(tmp_path, given=given)


@pytest.mark.parametrize(
    "change",
    [
        "model.scale.requires_grad = False",
        "model.scale.requires_grad_(False)",
        "for p in model.parameters():\n    p.requires_grad_(False)",
        "del model.scale",
        "model.scale = None",
        "model.scale = nn.Parameter(distribute_tensor(torch.ones(8), mesh, [Shard(0)]))",
    ],
)
def test_a_new_parameter_does_not_stay(tmp_path: Path, change: str) -> None:
    assert not found(tmp_path, change)


@pytest.mark.parametrize(
    "given",
    [
        "[model.weight, model.bias]",
        "[p for n, p in model.named_parameters() if n != 'scale']",
        "[p for p in model.parameters() if p.ndim > 1]",
    ],
)
def test_an_optimizer_may_leave_out_a_new_parameter(tmp_path: Path, given: str) -> None:
    assert not found(tmp_path, given=given)


def test_the_gradient_of_a_new_parameter_is_plain(tmp_path: Path) -> None:
    reduce = "dist.all_reduce(model.scale.grad)"
    assert not found(tmp_path, before_step=reduce)
    assert not found(tmp_path, before_step=reduce, code="FSDP415")
    assert found(tmp_path, before_step="dist.all_reduce(model.weight.grad)", code="FSDP415")


@pytest.mark.parametrize("name", ["scale", "weight"])
def test_a_hook_of_a_new_parameter_runs(tmp_path: Path, name: str) -> None:
    hook = f"model.{name}.register_hook(lambda grad: dist.all_reduce(grad))"
    assert found(tmp_path, hook, code="FSDP119") is (name == "weight")
    assert not found(tmp_path, hook)
