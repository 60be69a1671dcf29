"""FSDP141: which changes of a summoned parameter are lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(x)

net = Net()
model = FSDP(net, use_orig_params=True)
with FSDP.summon_full_params(model, writeback=False), torch.no_grad():
"""


def count(folder: Path, block: str) -> int:
    file = folder / "train.py"
    body = "".join(f"    {line}\n" for line in block.splitlines())
    file.write_text(HEAD + body + "model(torch.ones(2, 8)).sum().backward()\n")
    (folder / "pyproject.toml").touch()
    rule = rule_by_code("FSDP141")
    assert rule is not None
    return len(check(load([file]), [rule()]))


@pytest.mark.parametrize(
    "block",
    [
        "net.head.weight.mul_(2)",
        "weight = model.module.head.weight\nweight.data.copy_(torch.ones(8, 8))",
        "model.head.bias.clamp_(min=0)\nprint(model.head.bias.sum().item())",
    ],
)
def test_a_lost_change_is_found(tmp_path: Path, block: str) -> None:
    assert count(tmp_path, block) == 1


@pytest.mark.parametrize(
    "block",
    [
        "copy = net.head.weight.clone()\ncopy.mul_(2)",
        "copy = net.head.weight.detach().cpu().float()\ncopy.mul_(2)",
        "copy = net.head.weight * 2\ncopy.mul_(2)",
        "copy = torch.clone(net.head.weight)\ncopy.mul_(2)",
        "copy = net.head.weight.to(torch.float64)\ncopy.mul_(2)",
        "net.head.weight.mul_(2)\ntorch.save(net.state_dict(), 'a.pt')",
        "net.head.weight.mul_(2)\nnet.head(torch.ones(2, 8))",
        "other = nn.Linear(8, 8)\nother.weight.copy_(net.head.weight)",
        "copies = [p.clone() for p in net.parameters()]\ncopies[0].mul_(2)",
        "copies = {n: p.clone() for n, p in net.named_parameters()}\ncopies['a'].mul_(2)",
        "from elsewhere import export\nnet.head.weight.mul_(2)\nexport(net)",
        "from elsewhere import export\nnet.head.weight.mul_(2)\nexport(net.head.weight)",
    ],
)
def test_what_may_not_be_lost_is_not_reported(tmp_path: Path, block: str) -> None:
    assert count(tmp_path, block) == 0
