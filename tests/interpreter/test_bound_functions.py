"""Functions that a program binds to a module by itself: `types.MethodType`, `__get__`."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Called

PROGRAM = """
import types


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(x)


def embed(module, ids):
    return module.embedding(ids)


def forward(module, x):
    return module.head(x) * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lm = Lm()

    def forward(self, ids):
        return self.lm(self.lm.embed(ids))


model = Model()
INSTALL
fully_shard(model.lm)
fully_shard(model)
REGISTER
model(torch.load("ids.pt")).sum().backward()
"""
BINDINGS = (
    "model.lm.embed = types.MethodType(embed, model.lm)",
    "model.lm.embed = embed.__get__(model.lm)",
    "model.lm.embed = embed.__get__(model.lm, Lm)",
    "setattr(model.lm, 'embed', types.MethodType(embed, model.lm))",
)
REGISTER = (
    "from torch.distributed.fsdp import register_fsdp_forward_method\n"
    "register_fsdp_forward_method(model.lm, 'embed')"
)


@pytest.mark.parametrize("install", BINDINGS)
def test_a_bound_function_is_a_method(install: str, tmp_path: Path) -> None:
    body = PROGRAM.replace("INSTALL", install)
    found = program(tmp_path, body.replace("REGISTER", "pass"))
    assert {event.via for event in events(found, Called)} == {"call", "embed"}
    assert findings(found, "FSDP102")
    assert not findings(program(tmp_path, body.replace("REGISTER", REGISTER)), "FSDP102")


def test_a_forward_of_one_module(tmp_path: Path) -> None:
    install = "model.lm.forward = types.MethodType(forward, model.lm)"
    body = PROGRAM.replace("INSTALL", f"{BINDINGS[0]}\n{install}").replace("REGISTER", REGISTER)
    found = program(tmp_path, body)
    assert not findings(found, "FSDP101") and not findings(found, "FSDP102")


@pytest.mark.parametrize(
    "bound", ["types.MethodType(load(), model.lm)", "load().__get__(model.lm)"]
)
def test_an_unknown_function_is_bound(bound: str, tmp_path: Path) -> None:
    install = f"from zoo import load\nmodel.lm.embed = {bound}"
    found = program(tmp_path, PROGRAM.replace("INSTALL", install).replace("REGISTER", "pass"))
    assert not findings(found, "FSDP102")
