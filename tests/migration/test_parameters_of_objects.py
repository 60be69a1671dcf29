"""Gradients of parameters that an object of the program holds beside the wrapped model."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Layer(nn.Module):
    def __init__(self, gain=None):
        super().__init__()
        self.gain = gain


class Reward:
    def __init__(self, model):
        self.model = model
        self.gain = nn.Parameter(torch.tensor(1.0))
        {more}

    def loss(self, x):
        return (self.model(x) * self.gain).sum()


def train():
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
    inner = nn.Sequential(nn.Linear(4, 4))
    {before}
    reward = Reward(FSDP(inner))
    extra = {{"gain": reward.gain}}
    parameters = [*extra.values(), *reward.model.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    reward.loss(torch.ones(2, 4)).backward()
    dist.all_reduce(reward.gain.grad, op=dist.ReduceOp.AVG)
    optimizer.step()


train()
"""


def blockers(tmp_path: Path, more: str = "pass", before: str = "pass") -> list[str]:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(more=more, before=before))
    (plan,) = plans_of(load([path]))
    return [one.code for one in plan.blockers]


def test_the_gradient_of_a_parameter_beside_the_model_stays(tmp_path: Path) -> None:
    assert blockers(tmp_path) == []


@pytest.mark.parametrize(
    "more",
    [
        "model.gain = self.gain",
        "model.register_parameter('gain', self.gain)",
        "setattr(model, 'gain', self.gain)",
        "model.gains = nn.ParameterList([self.gain])",
        "model.layer = Layer(self.gain)",
        "self.gain = next(model.parameters())",
    ],
)
def test_a_parameter_that_a_model_gets_blocks(more: str, tmp_path: Path) -> None:
    assert "FSDP299-gradient-part" in blockers(tmp_path, more)


def test_a_model_may_get_it_in_code_that_no_run_reaches(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    never = "    if False:\n        reward.model.gain = reward.gain\n"
    text = PROGRAM.format(more="pass", before="pass")
    path.write_text(text.replace("    extra =", never + "    extra ="))
    (plan,) = plans_of(load([path]))
    assert [one.code for one in plan.blockers] == ["FSDP299-gradient-part"]
