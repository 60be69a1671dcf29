"""New tensors that are no DTensors, in operations with sharded parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

MODEL = """\
model = Net()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
weight = model.head.weight
width = int(input())
with torch.no_grad():
    {code}
"""


@pytest.mark.parametrize(
    "code",
    [
        "weight.copy_(torch.randn(8, 8))",
        "weight.copy_(torch.zeros(weight.shape))",
        "weight.copy_(torch.empty(weight.size()).normal_(std=0.02))",
        "weight.add_(torch.ones(8, width) * 0.1)",
        "weight.data.copy_(0.02 * torch.randn(8, 8))",
        "values = torch.rand(8, 8).mul_(2).sub_(1)\n    weight.copy_(values)",
        "values = torch.randn(8, 8, device='cpu').to(torch.float32)\n    weight.lerp_(values, 0.1)",
        "model.head.bias.copy_(torch.zeros(8))",
        "values = torch.empty(8, 8)\n    nn.init.orthogonal_(values)\n    weight.copy_(values)",
        "for p in model.parameters():\n        p.copy_(torch.randn(p.shape) * 0.02)",
    ],
)
def test_a_plain_tensor(tmp_path: Path, code: str) -> None:
    assert len(findings(program(tmp_path, MODEL.format(code=code)), "FSDP307")) == 1


@pytest.mark.parametrize(
    "code",
    [
        "weight.copy_(torch.randn_like(weight))",
        "weight.copy_(torch.zeros(()))",
        "weight.mul_(torch.ones(1))",
        "model.head.bias.copy_(torch.zeros(width))",
        "weight.copy_(torch.load('weight.pt'))",
        "weight.copy_(prepare(torch.randn(8, 8)))",
        "weight.to_local().copy_(torch.randn(4, 8))",
        "weight.full_tensor().copy_(torch.randn(8, 8))",
        "weight.copy_(torch.randn(8, 8).mean())",
        "weight.copy_(torch.randn(8, 8).view(-1)[0])",
        "nn.Linear(8, 8).weight.copy_(torch.randn(8, 8))",
        "model.unshard()\n    weight = model.head.weight\n    weight.copy_(torch.randn(8, 8))",
        "if not hasattr(weight, 'placements'):\n        weight.copy_(torch.randn(8, 8))",
    ],
)
def test_other_values(tmp_path: Path, code: str) -> None:
    assert not findings(program(tmp_path, MODEL.format(code=code)), "FSDP307")
