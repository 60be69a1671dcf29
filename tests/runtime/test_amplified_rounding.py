"""A program that makes large differences of rounding: what a comparison accepts, and what not."""

from __future__ import annotations

import pytest
from comparing import compared, side
from two_ranks import Outcome, TwoRanks

from fsdplint.runtime.proof.amplified_rounding import Explanation, explain, noise_of

# A step of the optimizer is one of the logistic map, which doubles a small difference in each step.
PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Map(nn.Module):
    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.linspace(0.1, 0.9, 8))
        self.register_buffer("mask", torch.full((2,), -torch.inf))

    def forward(self):
        x = self.x
        return {loss}


dist.init_process_group("gloo")
model = Map()
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
for step in range({steps}):
    loss = {scale} * model().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
LOSS, OTHER_ORDER = "1.3 * x * x * x - 1.45 * x * x", "(1.3 * x - 1.45) * x * x"


def explained(ranks: TwoRanks, steps: int, loss: str, scale: float = 1.0) -> Explanation:
    def run(loss: str, scale: float, noise: float = 0.0) -> Outcome:
        text = PROGRAM.format(loss=loss, steps=steps, scale=scale)
        return ranks.run(text, parameters=True, noise=noise)

    before, after = run(LOSS, 1.0), run(loss, scale)
    assert compared(before, before).holds
    comparison = compared(before, after)
    assert not comparison.holds
    noisy = run(LOSS, 1.0, noise_of(side(before)))
    return explain(comparison, side(before), side(after), side(noisy))


def test_rounding_in_another_order(two_ranks: TwoRanks) -> None:
    found = explained(two_ranks, 14, OTHER_ORDER)
    assert found.comparison.holds and not found.limit
    details = [check.detail for check in found.comparison.checks]
    assert any("if its gradients are rounded in another way" in one for one in details)


@pytest.mark.parametrize("scale", [1.001, 0.5])
def test_another_training(scale: float, two_ranks: TwoRanks) -> None:
    found = explained(two_ranks, 8, LOSS, scale)
    assert not found.comparison.holds and not found.limit


def test_more_steps_than_can_be_compared(two_ranks: TwoRanks) -> None:
    found = explained(two_ranks, 40, OTHER_ORDER)
    assert not found.comparison.holds
    assert "compare fewer steps" in found.limit
