"""Gradients of a model that nothing wraps, beside one that FSDP1 wraps."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan

PROGRAM = """
def average(module):
    for p in module.parameters():
        grad = p.grad.coalesce() if p.grad.is_sparse else p.grad.to_sparse(1)
        full = torch.zeros_like(p)
        full.index_add_(0, grad.indices()[0], grad.values())
        dist.all_reduce(full)
        p.grad = full.to_sparse(1)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 8)
        self.net = Net()

    def forward(self, i):
        return self.net(self.table(i))


model = Both()
model.net = FSDP(model.net)
model(torch.ones(2, dtype=torch.long)).sum().backward()
{calls}
"""


@pytest.mark.parametrize("calls", ["average(model.table)", "average(module=model.table)"])
def test_a_function_gets_the_model(tmp_path: Path, calls: str) -> None:
    found, after = plan(tmp_path, PROGRAM.format(calls=calls))
    assert not found.blockers, [one.reason for one in found.blockers]
    assert "p.grad.coalesce() if p.grad.is_sparse" in after


@pytest.mark.parametrize(
    "calls",
    [
        "average(model)",
        "average(model.net)\naverage(model.table)",
        "average(model.table)\naverage(model.net)",
        "average(model.table)\nprint(average)",
        "average(model.table)\ndef other(net):\n    average(net)",
    ],
)
def test_a_function_that_may_get_the_wrapped_model(tmp_path: Path, calls: str) -> None:
    found, _ = plan(tmp_path, PROGRAM.format(calls=calls))
    assert any("this rank's part" in one.reason for one in found.blockers)
