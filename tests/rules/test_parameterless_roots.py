"""FSDP105 on roots that have parameters of their own, and on those that have none."""

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

net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
root = nn.Module()
"""
TRAIN = """
optimizer = torch.optim.AdamW(root.parameters())
root(torch.randn(2, 8)).sum().backward()
optimizer.step()
"""


def found(tmp_path: Path, body: str) -> bool:
    path = tmp_path / "program.py"
    path.write_text(HEAD + body + TRAIN)
    rule = rule_by_code("FSDP105")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


FORWARD = "\nroot.forward = lambda x: root.net(x)"
NOTHING_LEFT = {
    "attribute": "root.net = fully_shard(net)" + FORWARD,
    "add_module": "root.add_module('net', fully_shard(net))" + FORWARD,
    "register_module": "root.register_module('net', net)\nfully_shard(root.net)" + FORWARD,
    "borrowed forward": "root.net = fully_shard(net)\nroot.forward = net.forward",
    "pooling": "root = nn.Sequential(net, nn.AvgPool1d(2), nn.Hardtanh(), nn.GLU())\n"
    "fully_shard(net)",
    "padding": "root = nn.Sequential(nn.ReflectionPad1d(1), nn.Unfold(2), net)\nfully_shard(net)",
    "norms without weights": "root = nn.Sequential(net, nn.InstanceNorm1d(8), "
    "nn.LayerNorm(8, elementwise_affine=False), nn.BatchNorm1d(8, affine=False))\nfully_shard(net)",
}


@pytest.mark.parametrize("body", NOTHING_LEFT.values(), ids=NOTHING_LEFT)
def test_every_parameter_is_in_a_group(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)


LEFT = {
    "a parameter": "root.net = fully_shard(net)\nroot.scale = nn.Parameter(torch.ones(1))"
    + FORWARD,
    "a registered one": "root.net = fully_shard(net)\n"
    "root.register_parameter('scale', nn.Parameter(torch.ones(1)))" + FORWARD,
    "another part": "root.net = fully_shard(net)\nroot.head = nn.Linear(8, 8)" + FORWARD,
    "norms with weights": "root = nn.Sequential(net, nn.InstanceNorm1d(8, affine=True))\n"
    "fully_shard(net)",
    "a bilinear layer": "root = nn.Sequential(net, nn.Bilinear(8, 8, 8))\nfully_shard(net)",
}


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_some_parameters_are_in_none(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)
