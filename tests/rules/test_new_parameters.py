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
optimizer.step()
"""


def found(tmp_path: Path, change: str = "pass", given: str = "model.parameters()") -> bool:
    path = tmp_path / "main.py"
    path.write_text(PROGRAM.format(change=change, given=given))
    rule = rule_by_code("FSDP113")
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
