"""Optimizers of the program, whose states get the type of FSDP2's parameters."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

OPTIMIZER = """
class Momentum(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["average"] = {made}
                state["average"].mul_(0.9).add_(p.grad)
                p.add_(state["average"], alpha=-group["lr"])


model = FSDP(Net())
optimizer = Momentum(model.parameters())
"""
MADE = {
    "torch.zeros(p.shape, dtype=p.dtype, device=p.device)": "torch.zeros_like(p)",
    "torch.zeros(p.size(), device=p.data.device)": "torch.zeros_like(p, dtype=torch.float32)",
    "torch.ones(p.grad.shape, dtype=torch.bfloat16, device=p.device)": (
        "torch.ones_like(p, dtype=torch.bfloat16)"
    ),
    "torch.zeros_like(p)": "torch.zeros_like(p)",
    "torch.zeros(1)": "torch.zeros(1)",
}


@pytest.mark.parametrize("made", MADE)
def test_a_state_with_the_shape_of_a_parameter(made: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, OPTIMIZER.replace("{made}", made))
    assert f'state["average"] = {MADE[made]}\n' in text


def test_a_state_on_another_device_blocks(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, OPTIMIZER.replace("{made}", "torch.zeros(p.shape, device='cpu')"))
    assert [one.code for one in found.blockers] == ["FSDP299-plain-state"]


def test_an_optimizer_of_another_model(tmp_path: Path) -> None:
    made = "torch.zeros(p.shape, device=p.device)"
    body = OPTIMIZER.replace("{made}", made).replace(
        "Momentum(model", "torch.optim.SGD(model.parameters())\nother = Momentum(Net()"
    )
    assert f'state["average"] = {made}\n' in migrated(tmp_path, textwrap.dedent(body))
