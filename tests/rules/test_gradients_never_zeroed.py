"""FSDP431 knows each way in which a program sets gradients to zero, hooks included."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


def clear(module):
    for tensor in module.parameters():
        setattr(tensor, "grad", None)


net = fully_shard(nn.Linear(8, 8))
engine = torch.optim.SGD(net.parameters(), lr=0.1)
{before}
for rows in torch.randn(4, 2, 8):
    net(rows).sum().backward()
    engine.step()
    {after}
"""


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("", "pass", 1),
        ("", "engine.zero_grad()", 0),
        ("", "clear(net)", 0),
        ("", "setattr(net, 'note', None)", 1),
        ("engine.register_step_post_hook(lambda one, *rest: one.zero_grad())", "pass", 0),
        ("engine.register_step_post_hook(lambda one, *rest: print(one))", "pass", 1),
        ("net.register_forward_pre_hook(lambda *rest: engine.zero_grad())", "pass", 0),
        ("net.register_full_backward_pre_hook(lambda *rest: clear(net))", "pass", 0),
        ("net.register_forward_pre_hook(lambda *rest: print('called'))", "pass", 1),
        (
            "from torch.optim.optimizer import register_optimizer_step_post_hook as each\n"
            "each(lambda one, *rest: one.zero_grad())",
            "pass",
            0,
        ),
    ],
)
def test_gradients_set_to_zero(tmp_path: Path, before: str, after: str, found: int) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(before=before, after=after))
    rule = rule_by_code("FSDP431")
    assert rule is not None
    assert len(list(check(load([path]), [rule()]))) == found
