"""FSDP418 is silent where a backward pass may run out of sight."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from library import Engine, run
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
one, other = nn.Linear(8, 8), nn.Linear(8, 8)
fully_shard(one)
fully_shard(other)
first = torch.optim.Adam(one.parameters())
second = torch.optim.Adam(other.parameters())
for x in torch.randn(4, 2, 8):
    other(one(x)).sum().backward()
    second.step()
    first.zero_grad()
    losses = {"sum": other(one(x)).sum()}
    loss = losses["sum"]
    BETWEEN
    first.step()
    second.zero_grad()
"""
SILENT = [
    "run(loss)",
    "run(lambda: loss)",
    "Engine(one).backward(loss)",
    "sum(losses.values()).backward()",
    "torch.autograd.backward(loss)",
    "torch.autograd.backward([loss])",
    "first.load_gradients(loss)",
    "one.weight.grad = torch.ones(8, 8)",
]


def found(folder: Path, between: str) -> int:
    main = folder / "main.py"
    main.write_text(PROGRAM.replace("BETWEEN", between))
    rule = rule_by_code("FSDP418")
    assert rule is not None
    return len(check(load([main]), [rule()]))


@pytest.mark.parametrize("between", SILENT)
def test_what_may_make_gradients(between: str, tmp_path: Path) -> None:
    assert not found(tmp_path, between)


@pytest.mark.parametrize("between", ["pass", "print(loss)"])
def test_what_makes_none(between: str, tmp_path: Path) -> None:
    assert found(tmp_path, between) == 1


MODELS = {
    "library": "transformers.AutoModelForCausalLM.from_pretrained('m')",
    "unknown": "watch(nn.Linear(8, 8))",
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("between", ["pass", "print(loss)", "watch(model)", "watch(loss)"])
def test_models_that_other_code_has(between: str, model: str, tmp_path: Path) -> None:
    """Other code that has the model makes no gradients unless it runs before the step."""
    main = tmp_path / "main.py"
    main.write_text(SEEN.replace("MODEL", MODELS[model]).replace("BETWEEN", between))
    rule = rule_by_code("FSDP418")
    assert rule is not None
    assert len(check(load([main]), [rule()])) == (between in ("pass", "print(loss)"))


SEEN = """\
import torch
import torch.distributed as dist
import transformers
from library import watch
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = MODEL
fully_shard(model)
watch(model)
optimizer = torch.optim.AdamW(model.parameters())
for x in torch.randn(4, 2, 8):
    loss = model(x).sum()
    loss.backward()
    optimizer.zero_grad()
    BETWEEN
    optimizer.step()
"""
