"""FSDP143 on copies of sharded parameters that go into gathered ones."""

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
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
fully_shard(model[0])
fully_shard(model{option})
optimizer = torch.optim.AdamW(model.parameters())


class Average:
    def __init__(self):
        self.values = {made}

    @torch.no_grad()
    def write(self, values):
{write}


average = Average()
model(torch.ones(4, 8)).sum().backward()
optimizer.step()
with torch.no_grad():
    model(torch.ones(4, 8))
    backup = {{n: p.detach().clone() for n, p in model.named_parameters()}}
    average.write(average.values)
    model(torch.ones(4, 8))
    average.write(backup)
"""
DICT = "{n: p.detach().clone() for n, p in model.named_parameters()}"
COPY = "        for n, p in model.named_parameters():\n            p.copy_(values[n])"


def found_in(folder: Path, made: str = DICT, write: str = COPY, option: str = "") -> int:
    file = folder / "main.py"
    file.write_text(PROGRAM.format(made=made, write=write, option=option))
    rule = rule_by_code("FSDP143")
    assert rule is not None
    return len(check(load([file]), [rule()]))


@pytest.mark.parametrize(
    "made",
    [
        DICT,
        "{n: p.clone().detach() for n, p in model.named_parameters()}",
        "{n: p.data.clone() for n, p in model.named_parameters() if p.requires_grad}",
        "dict((n, p.detach().clone()) for n, p in model.named_parameters())",
        "{n: torch.clone(p.detach()) for n, p in model.named_parameters()}",
    ],
)
def test_a_dict_of_sharded_copies(tmp_path: Path, made: str) -> None:
    assert found_in(tmp_path, made=made) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"option": ", reshard_after_forward=True"},
        {"write": f"        model.reshard()\n{COPY}"},
        {"made": "{n: p.full_tensor() for n, p in model.named_parameters()}"},
        {"made": "{n: p.detach().clone().full_tensor() for n, p in model.named_parameters()}"},
        {"made": "{n: p.to_local().clone() for n, p in model.named_parameters()}"},
        {"made": "{n: p.detach().clone().unknown() for n, p in model.named_parameters()}"},
    ],
)
def test_parameters_that_may_be_written(tmp_path: Path, changed: dict[str, str]) -> None:
    assert found_in(tmp_path, **changed) == 0
