"""Modules that a program replaces at a path that it takes apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

ADAPTED = """
import functools


class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.base.weight.requires_grad_(False)
        self.low = nn.Parameter(torch.zeros(8, 8))

    def forward(self, x):
        return self.base(x) + x @ self.low


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, x):
        return self.query(x) * self.key(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


model = Model()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
for path, part in list(model.named_modules()):
    if isinstance(part, nn.Linear) and {chosen}:
        {put}
{freeze}
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
"""
LAYERS = "self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)"
CHOSEN = 'path.rsplit(".", 1)[-1] in ("query",)'
PUT = 'setattr(model.get_submodule(path.rsplit(".", 1)[0]), path.split(".")[-1], Adapted(part))'


def reported(
    tmp_path: Path, put: str = PUT, chosen: str = CHOSEN, layers: str = LAYERS, freeze: str = ""
) -> bool:
    body = ADAPTED.format(put=put, chosen=chosen, layers=layers, freeze=freeze)
    return bool(findings(program(tmp_path, body), "FSDP113"))


@pytest.mark.parametrize(
    "put",
    [
        PUT,
        'head, _, name = path.rpartition("."); '
        "setattr(model.get_submodule(head), name, Adapted(part))",
        'head, name = path.rsplit(".", 1); setattr(model.get_submodule(head), name, Adapted(part))',
        'setattr(model.get_submodule(".".join(path.split(".")[:-1])), "query", Adapted(part))',
        '*names, name = path.split("."); '
        "setattr(functools.reduce(getattr, names, model), name, Adapted(part))",
        "model.set_submodule(path, Adapted(part))",
    ],
)
def test_the_module_at_a_path_is_replaced(tmp_path: Path, put: str) -> None:
    assert reported(tmp_path, put)


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (CHOSEN, True),
        ('path.split(".")[-1] == "query"', True),
        ('path.rpartition(".")[2] in ("value", "output")', False),
    ],
)
def test_the_name_of_a_module_is_known(tmp_path: Path, chosen: str, found: bool) -> None:
    assert reported(tmp_path, chosen=chosen) is found


@pytest.mark.parametrize(
    "layers",
    [
        "self.query, self.key = (nn.Linear(8, 8) for _ in range(2))",
        "self.query, self.key = [nn.Linear(8, 8) for _ in range(2)]",
    ],
)
def test_each_target_of_a_comprehension_gets_a_module(tmp_path: Path, layers: str) -> None:
    assert reported(tmp_path, layers=layers)


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ('name.endswith(".low")', True),
        ('name.endswith((".high", "low"))', True),
        ('any(text in name for text in ("high", "low"))', True),
        ('name.endswith(".base")', False),
        ('any(text in name for text in ("query", "high"))', True),
        ('name.endswith("query")', False),
    ],
)
def test_a_test_of_the_end_of_a_name(tmp_path: Path, test: str, found: bool) -> None:
    freeze = f"for name, parameter in model.named_parameters(): parameter.requires_grad_({test})"
    assert reported(tmp_path, freeze=freeze) is found
