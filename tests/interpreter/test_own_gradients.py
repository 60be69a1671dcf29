"""Gradients that FSDP1 shards: each rank tests its own part."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import findings, program

from fsdplint.trace import OptimizerStepped
from fsdplint.trace.queries.own_data import own_data_tests

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

dist.init_process_group("gloo")
model = FSDP(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)))
optimizer = torch.optim.AdamW(model.parameters())
"""


def guards_of_steps(folder: Path, body: str, head: str = HEAD) -> list[str]:
    """The tests of a rank's own data under which the optimizer steps, in order and each once."""
    turn = f"    model(x).mean().backward()\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    text = f"for x in batches():\n{turn}    optimizer.step()\n    optimizer.zero_grad()\n"
    found = program(folder, text, header=head)
    steps = [event for trace in found.traces for event in trace.of(OptimizerStepped)]
    return list(dict.fromkeys(test.text for event in steps for test in own_data_tests(event)))


@pytest.mark.parametrize(
    "test",
    [
        "any(torch.isnan(p.grad).any() for p in model.parameters() if p.grad is not None)",
        "any([p.grad.isnan().any() for p in model.parameters()])",
        "not all(torch.isfinite(p.grad).all().item() for p in model.parameters())",
        "max(p.grad.norm() for p in model.parameters()) > 100",
        "torch.stack([p.grad.norm() for p in model.parameters()]).norm() > 100",
        "sum(p.grad.pow(2).sum() for p in model.parameters()) > 100",
    ],
)
def test_a_test_of_all_gradients(tmp_path: Path, test: str) -> None:
    assert guards_of_steps(tmp_path, f"if {test}:\n    continue\n") == [test]


def test_a_flag_that_a_loop_sets(tmp_path: Path) -> None:
    body = """\
    bad = False
    for p in model.parameters():
        if p.grad is not None and not torch.isfinite(p.grad).all():
            bad = True
            break
    if bad:
        continue
    """
    assert guards_of_steps(tmp_path, body) == ["bad"]


def test_a_sum_that_a_loop_adds_up(tmp_path: Path) -> None:
    body = """\
    total = torch.zeros(1)
    for p in model.parameters():
        total += p.grad.pow(2).sum()
    {}
    if total > 100:
        continue
    """
    assert guards_of_steps(tmp_path, body.format("")) == ["total > 100"]
    assert guards_of_steps(tmp_path, body.format("dist.all_reduce(total)")) == []


@pytest.mark.parametrize("test", ["p.grad is None", "p.grad.shape[0] > 3", "p.grad.dim() > 1"])
def test_a_test_of_the_form_of_a_gradient(tmp_path: Path, test: str) -> None:
    body = f"""\
    several = False
    for p in model.parameters():
        if {test}:
            several = True
    if several:
        continue
    """
    assert guards_of_steps(tmp_path, body) == []


@pytest.mark.parametrize("strategy", ["HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "SHARD_GRAD_OP"])
def test_a_strategy_that_shards(tmp_path: Path, strategy: str) -> None:
    options = f"sharding_strategy=ShardingStrategy.{strategy}"
    head = HEAD.replace("nn.Linear(4, 1))", f"nn.Linear(4, 1)), {options}")
    test = "any(torch.isnan(p.grad).any() for p in model.parameters())"
    assert guards_of_steps(tmp_path, f"if {test}:\n    continue\n", head) == [test]


@pytest.mark.parametrize(
    "options",
    ["sharding_strategy=ShardingStrategy.NO_SHARD", "**options", "ignored_states=parts"],
)
def test_a_model_that_is_perhaps_not_sharded(tmp_path: Path, options: str) -> None:
    head = HEAD.replace("nn.Linear(4, 1))", f"nn.Linear(4, 1)), {options}")
    body = "if any(torch.isnan(p.grad).any() for p in model.parameters()):\n    continue\n"
    assert guards_of_steps(tmp_path, body, head) == []


def test_the_parts_of_the_model_are_not_known(tmp_path: Path) -> None:
    model = 'transformers.AutoModelForCausalLM.from_pretrained("gpt2")'
    head = HEAD.replace("nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))", model)
    test = "any(torch.isnan(p.grad).any() for p in model.parameters())"
    body = f"if {test}:\n    continue\n"
    assert guards_of_steps(tmp_path, body, f"import transformers\n{head}") == [test]
    escapes = f"import transformers, elsewhere\n{head}elsewhere.prepare(model)\n"
    assert guards_of_steps(tmp_path, body, escapes) == []


SUMS = {
    "norm().item() ** 2": "if p.grad is not None:\n        total += p.grad.norm().item() ** 2",
    "data.norm(2).item()": "if p.grad is None:\n        continue\n    total += p.grad.data.norm(2).item()",
}


@pytest.mark.parametrize("turn", SUMS.values(), ids=SUMS)
def test_a_sum_of_numbers_over_the_gradients_that_there_are(tmp_path: Path, turn: str) -> None:
    found = program(
        tmp_path,
        "model = FSDP(Net(), use_orig_params=True)\nmodel(x).mean().backward()\ntotal = 0.0\n"
        f"for p in model.parameters():\n    {turn}\ncoefficient = 1.0 / (total**0.5 + 1e-6)\n"
        "if coefficient < 1:\n    for p in model.parameters():\n        p.grad.mul_(coefficient)\n",
    )
    assert len(findings(found, "FSDP405")) == 1
