"""FSDP322: what counts as a copy of the weights that a program puts back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import argparse, copy, torch
import torch.distributed.checkpoint as dcp
from contextlib import contextmanager
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_state_dict, set_model_state_dict)
from torch.distributed.fsdp import fully_shard
args = argparse.ArgumentParser().parse_args()
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
for layer in model:
    fully_shard(layer)
fully_shard(model)
opt = torch.optim.AdamW(model.parameters())
average = {n: p.detach().clone() for n, p in model.named_parameters()}

def train():
    for _ in range(3):
        model(torch.randn(2, 4)).sum().backward()
        opt.step()
        opt.zero_grad()
        with torch.no_grad():
            for n, p in model.named_parameters():
                average[n].lerp_(p.detach(), 0.1)

def evaluate():
    with torch.no_grad():
        return model(torch.ones(2, 4)).sum()

@torch.no_grad()
def write(values):
    for n, p in model.named_parameters():
        p.copy_(values[n])
"""
SWAP = """
train()
kept = {n: p.detach() for n, p in model.named_parameters()}
write(average)
evaluate()
write(kept)
train()
"""
STATE = """
train()
kept = model.state_dict()
write(average)
evaluate()
model.load_state_dict(kept)
train()
"""
BEST = """
best, lowest = None, 1e9
for epoch in range(5):
    train()
    value = evaluate()
    if value < lowest:
        best, lowest = model.state_dict(), value
model.load_state_dict(best)
evaluate()
"""
MANAGER = """
class Average:
    def __init__(self, net):
        self.net = net

    @contextmanager
    def applied(self):
        kept = {n: p.data for n, p in self.net.named_parameters()}
        write(average)
        try:
            yield
        finally:
            write(kept)

train()
with Average(model).applied():
    evaluate()
train()
"""
OBJECT = """
class Swap:
    def __enter__(self):
        self.kept = get_model_state_dict(model)
        set_model_state_dict(model, average)

    def __exit__(self, *error):
        set_model_state_dict(model, self.kept)

train()
with Swap():
    evaluate()
train()
"""
CLONES = "{k: v.clone() for k, v in model.state_dict().items()}"


def findings(folder: Path, body: str) -> list[Finding]:
    file = folder / "train.py"
    file.write_text(HEAD + body)
    (folder / "pyproject.toml").touch()
    rule = rule_by_code("FSDP322")
    assert rule is not None
    return check(load([file]), [rule()])


@pytest.mark.parametrize(
    "body",
    [
        SWAP,
        SWAP.replace("p.detach()", "p.data"),
        SWAP.replace("{n: p.detach() for n, p in model.named_parameters()}",
            "dict(model.named_parameters())"),
        STATE,
        STATE.replace("model.state_dict()", "get_model_state_dict(model)"),
        STATE.replace("kept = model.state_dict()", "kept, _ = get_state_dict(model, opt)"),
        STATE.replace("model.load_state_dict(kept)", "set_model_state_dict(model, kept)"),
        STATE.replace("write(average)", "model.load_state_dict(average)"),
        STATE.replace("write(average)", "train()"),
        STATE.replace("model.state_dict()", "{'m': model.state_dict()}")
            .replace("state_dict(kept)", "state_dict(kept['m'])"),
        BEST,
        BEST.replace("model.load_state_dict(best)", "if best is not None:\n    model.load_state_dict(best)"),
        MANAGER,
        OBJECT,
    ],
)  # fmt: skip
def test_aliases_that_are_put_back_are_found(tmp_path: Path, body: str) -> None:
    assert len(findings(tmp_path, body)) == 1


@pytest.mark.parametrize(
    "body",
    [
        SWAP.replace("detach()", "detach().clone()"),
        SWAP.replace("p.detach() for", "p.clone().detach() for"),
        SWAP.replace("p.detach() for", "torch.clone(p) for"),
        SWAP.replace("p.detach() for", "p.detach() + 0 for"),
        # nothing changes in between
        SWAP.replace("write(average)\n", ""),
        # other parameters of the same dict
        SWAP.replace("write(kept)", "for n, p in model.named_parameters(): p.data.copy_(kept[n[:-1]])"),
        STATE.replace("model.state_dict()", "copy.deepcopy(model.state_dict())"),
        STATE.replace("model.state_dict()", "copy.deepcopy({'m': model.state_dict()})")
            .replace("state_dict(kept)", "state_dict(kept['m'])"),
        STATE.replace("model.state_dict()", "copy.deepcopy({'a': {'m': model.state_dict()}})")
            .replace("state_dict(kept)", "state_dict(kept['a']['m'])"),
        STATE.replace("model.state_dict()", CLONES),
        STATE.replace("model.state_dict()", "{k: v.cpu() for k, v in model.state_dict().items()}"),
        STATE.replace("model.state_dict()",
            "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"),
        STATE.replace("model.state_dict()",
            "get_model_state_dict(model, options=StateDictOptions(cpu_offload=True))"),
        # the state gets other values
        STATE.replace("evaluate()", "for v in kept.values(): v.mul_(2)"),
        STATE.replace("evaluate()", "kept['0.bias'] = torch.zeros(4)"),
        STATE.replace("evaluate()", "kept.update(average)"),
        STATE.replace("evaluate()", "dcp.load({'m': kept}, checkpoint_id='x')"),
        STATE.replace("evaluate()", "from elsewhere import fill\nfill(kept)"),
        STATE.replace("evaluate()", "from elsewhere import fill\nfill({'app': {'model': kept}})"),
        STATE.replace("write(average)\nevaluate()\n", ""),
        # another model
        "other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))\nfully_shard(other)\n"
        + STATE.replace("model.load", "other.load"),
        BEST.replace("model.state_dict(), value", CLONES + ", value"),
        # parameters that nothing shards share memory, too, but this is not about FSDP
        STATE.replace("train()\nkept", "model = nn.Linear(4, 1)\nkept"),
    ],
)  # fmt: skip
def test_copies_are_not_reported(tmp_path: Path, body: str) -> None:
    assert findings(tmp_path, body) == []


TWO = """
other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
for layer in other:
    fully_shard(layer)
fully_shard(other)
for _ in range(3):
    other.load_state_dict(model.state_dict(), assign=True)
    for _ in range(3):
        with torch.no_grad():
            wanted = other(torch.ones(2, 4))
        (model(torch.ones(2, 4)) - wanted).sum().backward()
        opt.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize(
    "body",
    [
        TWO,
        TWO.replace("model.state_dict()", "{n: t.detach() for n, t in model.state_dict().items()}"),
        TWO.replace("model.state_dict()", "get_model_state_dict(model)"),
        TWO.replace("    other.load", "    if torch.rand(1) < 0.5:\n        other.load"),
    ],
)
def test_a_second_model_follows_the_first(tmp_path: Path, body: str) -> None:
    assert len(findings(tmp_path, body)) == 1


@pytest.mark.parametrize(
    "body",
    [
        TWO.replace(", assign=True", ""),
        TWO.replace("model.state_dict()", CLONES),
        TWO.replace("model.state_dict()", "copy.deepcopy(model.state_dict())"),
        TWO.replace("model.state_dict()", "{n: t.float() for n, t in model.state_dict().items()}"),
        TWO.replace("model.state_dict()", "{n: t * 0.5 for n, t in model.state_dict().items()}"),
        # it is loaded once, to share the weights
        TWO.replace("for _ in range(3):\n    other.load", "if True:\n    other.load"),
        # it is loaded again before each call
        TWO.replace("            wanted", "            other.load_state_dict(model.state_dict(), assign=True)\n            wanted"),
        # the root keeps its own parameters gathered
        TWO.replace("for layer in other:\n    fully_shard(layer)\n", ""),
        TWO.replace("fully_shard(layer)\n", "fully_shard(layer, reshard_after_forward=False)\n"),
    ],
)  # fmt: skip
def test_a_second_model_has_copies(tmp_path: Path, body: str) -> None:
    assert findings(tmp_path, body) == []
