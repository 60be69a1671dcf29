"""Norms of gradients that one function adds up on each rank, and another one over the ranks."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import plan
from two_ranks import TwoRanks

ADDED = {
    "a sum": "return sum(p.grad.norm() ** 2 for p in model.parameters() if p.grad is not None)",
    "a variable": """
        total = 0.0
        for p in model.parameters():
            if p.grad is not None:
                total += p.grad.detach().pow(2).sum()
        return total
    """,
    "a function of torch": """
        added = sum(torch.linalg.vector_norm(p.grad, 2).square() for p in model.parameters())
        return added
    """,
}
CALLER = """
def squares(model):
{body}


def norm(model):
    total = squares(model)
    {reduce}
    return total.sqrt()


model = FSDP(Net())
model(torch.ones(2, 8)).sum().backward()
print(norm(model))
"""
METHODS = """
class Trainer:
    def __init__(self):
        self.model = FSDP(Net())

    def squares(self):
        return sum(p.grad.norm() ** 2 for p in self.model.parameters() if p.grad is not None)

    def norm(self):
        total = self.squares()
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        return total ** 0.5


trainer = Trainer()
trainer.model(torch.ones(2, 8)).sum().backward()
print(trainer.norm())
"""


def _program(added: str, reduce: str = "dist.all_reduce(total)") -> str:
    body = textwrap.indent(textwrap.dedent(added).strip(), "    ")
    return CALLER.format(body=body, reduce=reduce)


@pytest.mark.parametrize("added", list(ADDED.values()), ids=list(ADDED))
def test_the_parts_of_a_rank_are_added_up(tmp_path: Path, added: str) -> None:
    found, after = plan(tmp_path, _program(added))
    assert [one.reason for one in found.blockers] == []
    assert after.count("to_local()") == 1


def test_methods(tmp_path: Path) -> None:
    found, after = plan(tmp_path, METHODS)
    assert [one.reason for one in found.blockers] == []
    assert "p.grad.to_local().norm() ** 2" in after


OTHERS = {
    "no reduction": _program(ADDED["a sum"], "print(total)"),
    "the largest value": _program(ADDED["a sum"], "dist.all_reduce(total, op=dist.ReduceOp.MAX)"),
    "another variable": _program(ADDED["a sum"], "other = torch.ones(1); dist.all_reduce(other)"),
    "a caller that reduces nothing": _program(ADDED["a variable"]) + "print(squares(model))\n",
    "a number that changes": _program(
        ADDED["a variable"].replace("return total", "return total + 1")
    ),
    "a norm of another order": _program(
        ADDED["a sum"]
        .replace("p.grad.norm() ** 2", "p.grad.data.norm(order)")
        .replace("return", "order = 3.0; return"),
        "print(total)",
    ),
    "a norm without a square": _program(ADDED["a sum"].replace(" ** 2", "")),
}


@pytest.mark.parametrize("body", list(OTHERS.values()), ids=list(OTHERS))
def test_other_uses_of_the_sum_keep_the_part(tmp_path: Path, body: str) -> None:
    found, text = plan(tmp_path, body)
    assert not found.blockers, [one.reason for one in found.blockers]
    assert text.count(".to_local()") == 1
    assert any("this rank's part" in note.text for note in found.notes if note.unsafe)


PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def local_squares(parameters):
    total = torch.zeros(())
    for p in parameters:
        if p.grad is not None:
            total += p.grad.norm(2) ** 2
    return total


def grad_norm(model):
    squares = local_squares(model.parameters())
    dist.all_reduce(squares)
    return squares.sqrt().item()


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 7), nn.Tanh(), nn.Linear(7, 1))
model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.full((2, 8), 1.0 + step + dist.get_rank())).pow(2).mean().backward()
    print(f"{grad_norm(model):.4f}")
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def test_the_norm_is_that_of_fsdp1(tmp_path: Path, two_ranks: TwoRanks) -> None:
    found, after = plan(tmp_path, PROGRAM, head="")
    assert not found.blockers, [one.reason for one in found.blockers]
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old.error}\n{new.error}"
    assert new.stdout == old.stdout
