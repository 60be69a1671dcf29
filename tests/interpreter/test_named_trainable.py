"""`requires_grad` of each parameter that is a test of the parameter's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

ADAPTERS = """
class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.low_a = nn.Parameter(torch.zeros(2, 8))
        self.low_b = nn.Parameter(torch.zeros(8, 2))

    def forward(self, x):
        return self.base(x) + x @ self.low_a.t() @ self.low_b.t()


model = Net()
fully_shard(model)
model.head = Adapted(model.head)
for name, parameter in model.named_parameters():
    {freeze}
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, dtype=torch.long)).sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    ("freeze", "found"),
    [
        ('parameter.requires_grad_("low_" in name)', True),
        ('parameter.requires_grad = "low_" in name', True),
        ('parameter.requires_grad_("low_a" in name)', False),
        ('parameter.requires_grad_("embed" in name)', False),
        ('parameter.requires_grad_("low_" not in name)', False),
    ],
)
def test_a_test_of_the_name_leaves_parameters_trainable(
    tmp_path: Path, freeze: str, found: bool
) -> None:
    body = ADAPTERS.format(freeze=freeze)
    shown = [one.message for one in findings(program(tmp_path, body), "FSDP113")]
    assert bool(shown) == found


LAYERS = """
class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.low_a = nn.Linear(8, 2, bias=False)
        self.low_b = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 8))

    def forward(self, x):
        return self.base(x) + self.low_b(self.low_a(x))


def is_adapter(name):
    return "low_" in name


model = Net()
fully_shard(model)
for name in ("head", "embed"):
    {put}
for name, parameter in model.named_parameters():
    {freeze}
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
model(torch.ones(2, dtype=torch.long)).sum().backward()
optimizer.step()
"""
PUT = "setattr(model, name, Adapted(getattr(model, name)))"


@pytest.mark.parametrize(
    ("freeze", "found"),
    [
        ('parameter.requires_grad_("low_" in name)', True),
        ("parameter.requires_grad_(is_adapter(name))", True),
        ("parameter.requires_grad = is_adapter(name)", True),
        ('parameter.requires_grad_("low_a" in name)', True),
        ('parameter.requires_grad_("high_" in name)', False),
        ('parameter.requires_grad_("base" in name)', False),
        ("parameter.requires_grad_(not is_adapter(name))", False),
        ("parameter.requires_grad_(is_adapter(name) and args.adapters)", False),
        ("parameter.requires_grad_(is_adapter(name) or args.adapters)", True),
    ],
)
def test_a_test_of_the_name_of_a_layer(tmp_path: Path, freeze: str, found: bool) -> None:
    body = LAYERS.format(freeze=freeze, put=PUT)
    shown = [one.message for one in findings(program(tmp_path, body), "FSDP113")]
    assert bool(shown) == found
