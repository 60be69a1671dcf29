"""FSDP414 on changes in place of sharded parameters that only some ranks make."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.randn(2, 8)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
plain = nn.Linear(8, 8)
fully_shard(model, reshard_after_forward=True)
average = [p.detach().clone() for p in model.parameters()]
named = {n: p.detach().clone() for n, p in model.named_parameters()}
state = {n: v.clone() for n, v in model.state_dict().items()}
norms = {n: p.detach().norm().full_tensor() for n, p in model.named_parameters()}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def found(tmp_path: Path, body: str) -> bool:
    path = tmp_path / "program.py"
    path.write_text(HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    rule = rule_by_code("FSDP414")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "body",
    [
        "if rank == 0:\n    for p, a in zip(model.parameters(), average):\n        p.data.lerp_(a, 0.1)",
        "if dist.get_rank() != 0:\n    continue\nwith torch.no_grad():\n"
        "    for p in model.parameters():\n        p.mul_(0.9)",
        "if rank == 0:\n    with torch.no_grad():\n        for p in model.parameters():\n"
        "            p *= 0.9",
        "if rank == 0:\n    torch._foreach_mul_(list(model.parameters()), 0.9)",
        "if rank == 0:\n    for p, a in zip(model.parameters(), average):\n        p.data.copy_(a)",
    ],
)
def test_a_change_on_one_rank(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "for p, a in zip(model.parameters(), average):\n    p.data.lerp_(a, 0.1)",
        "if rank == 0:\n    for p in plain.parameters():\n        p.data.mul_(0.9)",
        "rate = 0.1 if rank == 0 else 0.2\nfor p in model.parameters():\n    p.data.mul_(rate)",
        "if rank == 0:\n    for p in model.parameters():\n        p.data.mul_(0.9)\nelse:\n"
        "    for p in model.parameters():\n        p.data.mul_(0.8)",
        "if rank == 0:\n    for p in model.parameters():\n        p.data.zero_()\n"
        "for p, a in zip(model.parameters(), average):\n    p.data.copy_(a)",
        "if rank == 0:\n    for p in model.parameters():\n        print(p.data.mul(0.9))",
    ],
)
def test_other_changes(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "if rank == 0:\n    for a, p in zip(average, model.parameters()):\n        a.lerp_(p, 0.1)",
        "if rank == 0:\n    torch._foreach_lerp_(average, list(model.parameters()), 0.1)",
        "if rank == 0:\n    for n, p in model.named_parameters():\n"
        "        named[n].mul_(0.9).add_(p.data, alpha=0.1)",
        "if rank == 0:\n    for n, p in model.named_parameters():\n"
        "        named[n] = 0.1 * p.data + 0.9 * named[n]",
        "if rank == 0:\n    for n, p in model.named_parameters():\n        named[n] *= 0.9",
        "if rank == 0:\n    for n, v in model.state_dict().items():\n        state[n].lerp_(v, 0.1)",
    ],
)
def test_copies_on_one_rank(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "for n, p in model.named_parameters():\n    named[n].lerp_(p, 0.1)",
        "if rank == 0:\n    for n, p in model.named_parameters():\n"
        "        named[n].lerp_(p, 0.1)\nelse:\n    for n, p in model.named_parameters():\n"
        "        named[n].lerp_(p, 0.1)",
        "if rank == 0:\n    for n in norms:\n        norms[n].mul_(2)\n"
        "        norms[n] = norms[n] / 4",
        "if rank == 0:\n    for n, p in plain.named_parameters():\n"
        "        kept = p.detach().clone()\n        kept.mul_(0.9)\n        kept = 2 * kept",
        "if rank == 0:\n    for p in model.parameters():\n        half = p.detach().clone()\n"
        "        half.mul_(0.5)\n        half = half + half\n        print(half.to_local())",
        "if rank == 0:\n    for v in model.state_dict().values():\n        half = v.clone()\n"
        "        print(half.mul_(0.5).to_local())",
        "whole = [p.full_tensor() for p in model.parameters()]\n"
        "if rank == 0:\n    for a in whole:\n        a.mul_(0.9)",
        "if rank == 0:\n    for p in model.parameters():\n        print(p.detach().abs())",
        "if rank == 0:\n    for p in model.parameters():\n        print(p.detach().clone().abs_())",
        "if rank == 0:\n    for p in model.parameters():\n"
        "        half = p.detach().clone()\n        half = half / 2\n        print(half)",
        "if rank == 0:\n    for n, v in model.state_dict().items():\n"
        "        print(n, v.clone().sub_(named[n]))",
        "if rank == 0:\n    sums = {n: torch.zeros_like(p) for n, p in model.named_parameters()}\n"
        "    for n, p in model.named_parameters():\n        sums[n].add_(p.detach())",
        "change = {n: p.detach() - named[n] for n, p in model.named_parameters()}\n"
        "if rank == 0:\n    for n in change:\n        print(change[n].abs_())",
        "late = {n: v.clone() for n, v in model.state_dict().items()}\n"
        "if rank == 0:\n    for n in late:\n        print(late[n].abs_())",
        "if rank == 0:\n    import copy\n    kept = copy.deepcopy(average)\n"
        "    for a in kept:\n        a.mul_(2)",
    ],
)
def test_other_copies(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "if rank == 0:\n    for p in model.parameters():\n        nn.init.normal_(p, std=0.02)",
        "if rank == 0:\n    nn.init.xavier_uniform_(model[0].weight)",
        "if rank == 0:\n    for m in model:\n        m.reset_parameters()",
        "if rank != 0:\n    for p in model.parameters():\n        p.data.uniform_(-0.1, 0.1)",
    ],
)
def test_new_random_values_on_one_rank(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "for p in model.parameters():\n    nn.init.normal_(p, std=0.02)",
        "if rank == 0:\n    for p in plain.parameters():\n        nn.init.normal_(p, std=0.02)",
        "if rank == 0:\n    nn.init.normal_(model[0].weight)\nelse:\n"
        "    nn.init.normal_(model[0].weight)",
        "if rank == 0:\n    nn.init.normal_(model[0].weight)\nnn.init.normal_(model[0].weight)",
        "if rank == 0:\n    noise = torch.empty(8, 8).normal_()",
        "if rank == 0:\n    nn.init.normal_(model[0].weight)\nfrom elsewhere import sync\nsync(model)",
    ],
)
def test_other_random_values(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)
