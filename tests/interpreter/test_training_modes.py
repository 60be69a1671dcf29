"""The mode of a model: `train()`, `eval()`, and what makes it unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.trace import Called

HEAD = """\
import copy
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard, FullyShardedDataParallel as FSDP

class Net(nn.Module):
    def __init__(self, p=0.1):
        super().__init__()
        self.layer, self.drop = nn.Linear(4, 4), nn.Dropout(p)

    def forward(self, x):
        return self.drop(self.layer(x)) if self.training else self.layer(x)

    def encode(self, x):
        return self.layer(x)

model = Net()
fully_shard(model)
"""


def modes(folder: Path, body: str) -> list[bool | None]:
    (trace,) = program(folder, body, header=HEAD).traces[:1]
    return [event.training for event in trace.of(Called) if event.inside is None]


@pytest.mark.parametrize(
    "line, mode",
    [
        ("model.train()", True),
        ("model.train(); model.eval()", False),
        ("model.eval(); model.train(True)", True),
        ("model.train(mode=False)", False),
        ("model.eval(); nn.Module.train(model)", True),
        ("nn.Module.train(model, False)", False),
        ("model.train(); model.drop.eval()", True),
        ("model.train(); FSDP(nn.Linear(4, 4)).eval()", True),
        ("", True),
        ("model.drop.eval()", True),
        ("unknown(model)", None),
        ("unknown.eval()", None),
        ("model.eval(); model = copy.deepcopy(model)", False),
        ("model = copy.deepcopy(model)", True),
        ("model.train(unknown)", None),
        ("model.train(); unknown(model)", None),
        ("model.train(); unknown.eval()", None),
        ("model.train(); kept = model.training", None),
        ("model.train(); model.training = kept", None),
        ("model.train(); print(f'{model.training}')", True),
        ("model.eval(); print('mode', model.training, file=out)", False),
        ("model.eval(); assert not model.training", False),
        ("model.eval(); print(keep(model.training))", None),
        ("model.eval(); print(kept := model.training)", None),
        ("model.eval(); text = f'{keep(model.training)}'", None),
        ("model.eval(); print(file=model.training)", None),
        ("model = Net(0.0); fully_shard(model); model.train()", None),
        ("model = Net(); model.train(); model = FSDP(model)", True),
        ("model = FSDP(Net()); model.eval()", False),
    ],
)
def test_the_mode_of_a_call(tmp_path: Path, line: str, mode: bool | None) -> None:
    assert modes(tmp_path, f"{line}\nmodel(torch.randn(2, 4))\n") == [mode]


def test_a_method_is_called_in_the_mode_of_its_module(tmp_path: Path) -> None:
    body = "model.eval()\nmodel.encode(torch.randn(2, 4))\n"
    assert modes(tmp_path, body) == [False]
