"""FSDP101 and FSDP102 where a forward has left the parameters gathered that a method computes with."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 8)
        self.middle = nn.Linear(8, 8)
        self.head = nn.Linear(8, 8)

    def encode(self, x):
        return self.encoder(x)

    def features(self, x):
        return self.head(self(x))

    def forward(self, x):
        return self.head(self.middle(self.encoder(x)))


model, x = Net(), torch.randn(2, 8)
fully_shard(model.middle)
"""


def found(tmp_path: Path, body: str, code: str = "FSDP102") -> bool:
    path = tmp_path / "program.py"
    path.write_text(HEAD + body)
    rule = rule_by_code(code)
    assert rule is not None
    return bool(check(load([path]), [rule()]))


SHARD = "fully_shard(model)\n"
GATHERED = {
    "before the backward": SHARD + "loss = model(x).sum()\nmodel.encode(x)\nloss.backward()",
    "without gradients": SHARD + "with torch.no_grad():\n    model(x)\n    model.encode(x)",
    "in a loop": SHARD + "with torch.no_grad():\n    for x in range(9):\n        model(x)\n"
    "        model.encode(x)",
    "kept": "fully_shard(model, reshard_after_forward=False)\nmodel(x)\nmodel.encode(x)",
    "kept from here on": "fully_shard(model, reshard_after_forward=True)\n"
    "model.set_reshard_after_forward(False)\nmodel(x)\nmodel.encode(x)",
    "perhaps kept": "fully_shard(model, reshard_after_forward=choose())\nmodel(x)\nmodel.encode(x)",
    "compiled": SHARD + "fast = torch.compile(model)\nfast(x)\nmodel.encode(x)",
    "by the method itself": SHARD + "model.features(x)",
    "perhaps resharded": SHARD + "for x in range(9):\n    loss = model(x).sum()\n"
    "    if x % 2:\n        model.reshard()\n    model.encode(x)",
}


@pytest.mark.parametrize("body", GATHERED.values(), ids=GATHERED)
def test_the_method_works(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)


SHARDED = {
    "never called": SHARD + "model.encode(x)",
    "after the backward": SHARD + "model(x).sum().backward()\nmodel.encode(x)",
    "in a loop": SHARD + "for x in range(9):\n    model(x).sum().backward()\n    model.encode(x)",
    "called at times": SHARD + "for x in range(9):\n    if x % 2:\n        model(x)\n"
    "    model.encode(x)",
    "resharded": SHARD + "model(x)\nmodel.reshard()\nmodel.encode(x)",
    "by its state": SHARD + "model(x)\nstate = model.state_dict()\nmodel.encode(x)",
    "not kept": "fully_shard(model, reshard_after_forward=True)\nmodel(x)\nmodel.encode(x)",
    "not kept from here on": SHARD
    + "model.set_reshard_after_forward(True)\nmodel(x)\nmodel.encode(x)",
    "not the root": SHARD + "outer = nn.Sequential(model)\nfully_shard(outer)\nouter(x)\n"
    "model.encode(x)",
}


@pytest.mark.parametrize("body", SHARDED.values(), ids=SHARDED)
def test_the_method_fails(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)


WITHOUT_GRADIENTS = SHARD + "with torch.no_grad():\n    "
COMPUTES = {
    "after a call": WITHOUT_GRADIENTS + "model(x)\n    model.forward(x)",
    "after a call with gradients": SHARD + "model(x)\nwith torch.no_grad():\n    model.forward(x)",
    "in inference mode": SHARD + "with torch.inference_mode():\n    model(x)\n    model.forward(x)",
    "of a part": WITHOUT_GRADIENTS + "model(x)\n    model.encoder.forward(x)",
    "of what stays gathered": "model.middle.set_reshard_after_forward(False)\n"
    + WITHOUT_GRADIENTS
    + "model(x)\n    model.middle.forward(x)",
}


@pytest.mark.parametrize("body", COMPUTES.values(), ids=COMPUTES)
def test_the_direct_call_works(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body, "FSDP101")


FAILS = {
    "before the call": WITHOUT_GRADIENTS + "model.forward(x)\n    model(x)",
    "after the backward": SHARD
    + "model(x).sum().backward()\nwith torch.no_grad():\n    model.forward(x)",
    "of a part with a group of its own": WITHOUT_GRADIENTS
    + "model(x)\n    model.middle.forward(x)",
    "not kept": "fully_shard(model, reshard_after_forward=True)\nwith torch.no_grad():\n"
    "    model(x)\n    model.forward(x)",
    "gradients are not reduced": WITHOUT_GRADIENTS + "model(x)\nmodel.forward(x).sum().backward()",
}


@pytest.mark.parametrize("body", FAILS.values(), ids=FAILS)
def test_the_direct_call_fails(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body, "FSDP101")
