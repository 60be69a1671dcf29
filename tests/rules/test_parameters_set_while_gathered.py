"""FSDP143: which changes of parameters come while a forward has left them gathered."""

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
        self.first = nn.Linear(8, 8)
        self.last = nn.Linear(8, 8)

    def forward(self, x):
        return self.last(self.first(x))


model, x = Net(), torch.randn(2, 8)
fully_shard(model.first)
{shard}
shadow = [p.detach().clone() for p in model.parameters()]
named = {{n: p.detach().clone() for n, p in model.named_parameters()}}
with torch.no_grad():
    model(x)
"""
ROOT = "fully_shard(model)"
TRAIN = "\nmodel(x).sum().backward()\n"


def found(tmp_path: Path, body: str, *, shard: str = ROOT, after: str = TRAIN) -> bool:
    path = tmp_path / "program.py"
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    path.write_text(HEAD.format(shard=shard) + lines + after)
    rule = rule_by_code("FSDP143")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


CHANGES = [
    "for p in model.parameters(): p.mul_(0.5)",
    "for p in model.parameters(): p *= 0.5",
    "for p in model.parameters(): p.data.clamp_(-1, 1)",
    "for p in model.parameters(): nn.init.zeros_(p)",
    "for i, p in enumerate(model.parameters()): p.copy_(shadow[i])",
    "for n, p in model.named_parameters(): p.copy_(named[n])",
    "for n, p in model.named_parameters():\n    if p.requires_grad: p.copy_(named[n])",
    "for p, s in zip(model.parameters(), shadow): p.copy_(s)",
    "for p, s in zip(list(model.parameters()), shadow): p.data.copy_(s)",
    "for (n, p), s in zip(model.named_parameters(), shadow): p.lerp_(s, 0.5)",
    "torch._foreach_copy_(list(model.parameters()), shadow)",
    "torch._foreach_mul_(list(model.parameters()), 0.5)",
    "model.last.weight.fill_(0.1)",
    "for m in model.modules():\n    if isinstance(m, nn.Linear): m.bias.zero_()",
    "for n, p in model.named_parameters():\n    if not p.requires_grad: continue\n    p.copy_(named[n])",
]
# Dicts with an entry for each parameter, and tests of their names.
DICTS = [
    "kept = {n: p.detach().clone() for n, p in model.named_parameters()}",
    "kept = {n: p.detach().float() for n, p in model.named_parameters() if p.requires_grad}",
    "kept = {n: torch.zeros_like(p) for n, p in model.named_parameters()}",
    "kept = {}\nfor n, p in model.named_parameters(): kept[n] = p.detach().clone()",
    "kept = dict()\nfor n, p in model.named_parameters():\n"
    "    if p.requires_grad:\n        kept[n] = p.detach().clone()",
    "kept = {}\nfor n, p in model.named_parameters():\n"
    "    if not p.requires_grad:\n        continue\n    kept[n] = p.detach().clone()",
]
TESTS = [
    "for n, p in model.named_parameters():\n    if n in kept: p.copy_(kept[n])",
    "for n, p in model.named_parameters():\n    if n not in kept: continue\n    p.copy_(kept[n])",
    "for n, p in model.named_parameters():\n    if p.requires_grad and n in kept: p.copy_(kept[n])",
]


@pytest.mark.parametrize("body", CHANGES)
def test_a_change_is_found(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("made", DICTS)
def test_a_test_of_all_names(tmp_path: Path, made: str, test: str) -> None:
    assert found(tmp_path, f"{made}\n{test}")


@pytest.mark.parametrize(
    "made",
    [
        "kept = {n: p.clone() for n, p in model.named_parameters() if 'first' in n}",
        "kept = {n: p.clone() for n, p in model.named_parameters() if p.ndim > 1}",
        "kept = {n: p.clone() for n, p in model.first.named_parameters()}",
        "kept = {n[6:]: p.clone() for n, p in model.named_parameters()}",
        "kept = {}\nfor n, p in model.named_parameters():\n    if 'first' in n: kept[n] = p.clone()",
        "kept = {}\nfor n, p in model.named_parameters():\n"
        "    if 'last' in n: continue\n    kept[n] = p.clone()",
        "kept = {}\nfor n, p in model.named_parameters():\n    kept[n] = p.clone()\n    if found(p): break",
        f"{DICTS[0]}\ndel kept['last.weight'], kept['last.bias']",
        f"{DICTS[0]}\nkept.pop('last.weight')",
        f"{DICTS[0]}\nkept.clear()",
        f"{DICTS[0]}\nfor n in list(kept):\n    if 'last' in n: del kept[n]",
        f"{DICTS[0]}\nunknown(kept)",
    ],
)
def test_a_test_of_some_names(tmp_path: Path, made: str) -> None:
    assert not found(tmp_path, f"{made}\n{TESTS[0]}")


def test_a_part_of_the_name(tmp_path: Path) -> None:
    loop = "for n, p in model.named_parameters():\n    if n[5:] in kept: p.copy_(kept[n[5:]])"
    assert not found(tmp_path, f"{DICTS[0]}\n{loop}")


def test_a_state_shards_the_parameters_again(tmp_path: Path) -> None:
    assert found(tmp_path, CHANGES[0], after="torch.save(model.state_dict(), 'model.pt')\n")


@pytest.mark.parametrize(
    "body",
    [
        "model.first.weight.fill_(0.1)",
        "for p in model.first.parameters(): p.mul_(0.5)",
        "for n, p in model.named_parameters():\n    if 'first' in n: p.mul_(0.5)",
        "for n, p in model.named_parameters():\n    if 'last' in n: continue\n    p.mul_(0.5)",
        "for p in [q.clone() for q in model.parameters()]: p.mul_(0.5)",
        "for s, p in zip(shadow, model.parameters()): s.lerp_(p, 0.5)",
        "for p in model.parameters(): p.mul_(2)\nmodel(x)\nfor p in model.parameters(): p.mul_(0.5)",
        "model.reshard()\nfor p in model.parameters(): p.mul_(2)",
        "model.state_dict()\nfor p in model.parameters(): p.mul_(2)",
        "for p in model.parameters(): p.data = p.data.to('cpu')",
        "unknown(model)\nfor p in model.parameters(): p.mul_(2)",
        "for p in model.parameters(): p.grad.mul_(2)",
    ],
)
def test_other_parameters_and_other_times(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)


@pytest.mark.parametrize(
    "shard",
    [
        "fully_shard(model, reshard_after_forward=True)",
        "fully_shard(model.last)\nfully_shard(model)",
        "fully_shard(model, reshard_after_forward=choose())",
        "fully_shard(model, ignored_params={model.last.weight, model.last.bias})",
        "fully_shard(model, **options)",
    ],
)
def test_other_shardings(tmp_path: Path, shard: str) -> None:
    assert not found(tmp_path, CHANGES[0], shard=shard)


@pytest.mark.parametrize(
    "after", ["", "model(x)\n", "model.load_state_dict(torch.load('model.pt'))\n"]
)
def test_nothing_drops_the_change(tmp_path: Path, after: str) -> None:
    assert not found(tmp_path, CHANGES[0], after=after)


def test_operands_of_another_sharded_model(tmp_path: Path) -> None:
    other = "other = Net()\nfully_shard(other)\nother(x).sum().backward()\n"
    loop = "for p, q in zip(model.parameters(), other.parameters()): p.lerp_(q, 0.1)"
    assert found(tmp_path, loop, shard=ROOT + "\n" + other, after="")
