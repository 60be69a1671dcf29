"""FSDP318 where the program casts the weights, or copies them, before it trains."""

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
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
if dist.get_rank() == 0:
    model.load_state_dict(torch.load("weights.pt"))
model = FSDP(model, use_orig_params=True)
for parameter in model.parameters():
    {change}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(4, 8)).sum().backward()
optimizer.step()
"""


def found(tmp_path: Path, change: str) -> int:
    file = tmp_path / "main.py"
    file.write_text(PROGRAM.format(change=change))
    rule = rule_by_code("FSDP318")
    assert rule is not None
    return len(check(load([file]), [rule()]))


SAME = [
    "parameter.data = parameter.data.to(torch.bfloat16)",
    "parameter.data = parameter.to(torch.bfloat16)",
    "parameter.data = parameter.data.float().contiguous()",
    "parameter.master = torch.empty_like(parameter); parameter.master.copy_(parameter.float())",
]


@pytest.mark.parametrize("change", SAME)
def test_the_weights_stay_the_same(tmp_path: Path, change: str) -> None:
    assert found(tmp_path, change) == 1


OTHER = [
    "parameter.data = weights[parameter]",
    "parameter.data = parameter.data.new_zeros(parameter.shape)",
    "parameter.data = receive(parameter).to(torch.bfloat16)",
    "parameter.data.copy_(weights[parameter])",
    "parameter.detach().copy_(weights[parameter])",
]


@pytest.mark.parametrize("change", OTHER)
def test_the_weights_may_come_from_elsewhere(tmp_path: Path, change: str) -> None:
    assert found(tmp_path, change) == 0
