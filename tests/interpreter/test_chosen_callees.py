"""Calls whose callee a conditional expression chooses."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Collective, OptimizerBuilt, Sharded


def built(folder: Path, body: str) -> OptimizerBuilt:
    """The optimizer over the two lists that a loop over the parameters fills."""
    found = program(
        folder,
        "decay, other, model = [], [], Net()\n"
        + textwrap.dedent(body)
        + 'groups = [{"params": decay}, {"params": other, "weight_decay": 0.0}]\n'
        "optimizer = torch.optim.AdamW(groups)\n",
    )
    (event,) = events(found, OptimizerBuilt)
    return event


@pytest.mark.parametrize(
    "line",
    [
        "(decay if p.dim() >= 2 else other).append(p)",
        "(decay.append if p.dim() >= 2 else other.append)(p)",
        "(other if p.dim() < 2 else decay).extend([p])",
    ],
)
def test_both_lists_get_parameters(line: str, tmp_path: Path) -> None:
    event = built(tmp_path, f"for p in model.parameters():\n    {line}\n")
    assert event.complete
    assert len(event.modules) == 1


def test_under_a_test(tmp_path: Path) -> None:
    body = """\
    for p in model.parameters():
        if p.requires_grad:
            (decay if p.dim() >= 2 else other).append(p)
    """
    assert built(tmp_path, body).complete


def test_a_setting_chooses_one_side(tmp_path: Path) -> None:
    body = "model = Net()\n(fully_shard if args.shard else print)(model)\n"
    found = program(tmp_path, body)
    assert [len(list(trace.of(Sharded))) for trace in found.traces if trace.complete] == [1, 0]


def test_all_ranks_evaluate_the_arguments(tmp_path: Path) -> None:
    body = "(print if dist.get_rank() == 0 else str)(dist.all_reduce(torch.ones(1)))\n"
    (event,) = events(program(tmp_path, body), Collective)
    assert not event.ranks.partial
