"""A function for norms of gradients of any order, of which the program asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan

PROGRAM = """
from torch import inf

def gradient_norm(parameters, order: float = 2.0):
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    parameters = [p for p in parameters if p.grad is not None]
    if order == inf:
        return max(p.grad.detach().{largest}.to("cpu") for p in parameters)
    return torch.norm(torch.stack([torch.norm(p.grad.detach(), order) for p in parameters]), order)

model = FSDP(Net())
model(torch.ones(2, 8)).sum().backward()
print(gradient_norm(model.parameters(){order}))
"""


@pytest.mark.parametrize("largest", ["abs().max()", "abs().amax()"])
def test_another_order_is_kept_with_it(tmp_path: Path, largest: str) -> None:
    found, text = plan(tmp_path, PROGRAM.format(largest=largest, order=""))
    assert not found.blockers, [one.reason for one in found.blockers]
    assert f"max(p.grad.to_local().detach().{largest}" in text
    assert "torch.norm(p.grad.to_local().detach(), order)" in text
    assert [note.unsafe for note in found.notes if "norm of gradients" in note.text] == [True]


@pytest.mark.parametrize(("largest", "order"), [("max()", ""), ("abs().max()", ", inf")])
def test_other_reads_block(tmp_path: Path, largest: str, order: str) -> None:
    """The largest gradient is no norm, and some rank may have no part of a parameter."""
    found, _ = plan(tmp_path, PROGRAM.format(largest=largest, order=order))
    assert "FSDP299-gradient-part" in [one.blocker.code for one in found.blockers]
