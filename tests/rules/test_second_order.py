"""FSDP427: gradients of gradients through a sharded model, in several spellings."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import operator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import autograd, nn
from torch.autograd import grad
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x)


class Forces(Energy):
    def forward(self, x):
        return torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0]


def penalty(scores, x):
    (gradient,) = autograd.grad(outputs=scores.sum(), inputs=x, create_graph=True)
    return (gradient.norm(2, dim=1) - 1).square().mean()


def switch(model, value):
    model.set_reshard_after_backward(value)


dist.init_process_group("gloo")
model = Energy()
{shard}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for step, x in enumerate(torch.randn(4, 2, 8)):
    x.requires_grad_()
    {loss}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SHARD = "fully_shard(model)"


def found(tmp_path: Path, shard: str, loss: str) -> bool:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(shard=shard, loss=loss))
    rule = rule_by_code("FSDP427")
    assert rule is not None
    return bool(list(check(load([path]), [rule()])))


@pytest.mark.parametrize(
    "loss",
    [
        "s = model(x); loss = s.mean() + 10 * penalty(s, x)",
        "loss = model(x).mean(); loss += penalty(model(x), x)",
        "loss = grad(model(x).sum(), x, create_graph=True)[0].pow(2).sum()",
        "loss = grad([model(x).sum()], [x], None, True, True)[0].pow(2).sum()",
        "g = grad(model(x).sum(), x, create_graph=True); loss = torch.linalg.vector_norm(g[0])",
        "g, = grad(model(x).sum(), (x,), create_graph=True); loss = F.mse_loss(g, -x)",
        "s = model(x); loss = sum([s.mean(), penalty(s, x)])",
        "s = model(x); loss = s.mean() + (penalty(s, x) if step % 4 == 0 else 0)",
        "s = model(x); loss = torch.stack([s.mean(), penalty(s, x)]).sum()",
        "s = model(x); loss = scaler.scale(s.mean() + penalty(s, x))",
        "s = model(x); t = operator.methodcaller('sum')(s); "
        "loss = grad(t, x, create_graph=True)[0].sum()",
        "losses = {'r': penalty(model(x), x)}; loss = losses['r']",
    ],
)
def test_a_gradient_that_is_differentiated(tmp_path: Path, loss: str) -> None:
    assert found(tmp_path, SHARD, loss)


@pytest.mark.parametrize(
    "loss",
    [
        "loss = model(x).mean()",
        "s = model(x); g = grad(s.sum(), x, retain_graph=True)[0]; loss = s.mean() + g.mean()",
        "s = model(x); g = penalty(s, x); print(g); loss = s.mean()",
        "s = model(x); loss = s.mean() + penalty(s, x).detach()",
        "s = model(x); loss = s.mean() * penalty(s, x).item()",
        "s = x.pow(2); loss = model(x).mean() + penalty(s, x)",
        "switch(model, False); p = penalty(model(x), x); switch(model, True); loss = p",
    ],
)
def test_no_gradient_that_is_differentiated(tmp_path: Path, loss: str) -> None:
    assert not found(tmp_path, SHARD, loss)


@pytest.mark.parametrize(
    "shard, reported",
    [
        ("model = Forces(); fully_shard(model)", False),
        ("model = Forces(); fully_shard(model.net); fully_shard(model)", True),
        ("model = FullyShardedDataParallel(Forces())", False),
        ("model = Forces(); model.net = FullyShardedDataParallel(model.net)", True),
        ("pass", False),
    ],
)
def test_a_forward_that_computes_a_gradient(tmp_path: Path, shard: str, reported: bool) -> None:
    assert found(tmp_path, shard, "loss = model(x).pow(2).mean()") is reported
