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
    assert bool(findings(program(tmp_path, body), "FSDP113")) == found
