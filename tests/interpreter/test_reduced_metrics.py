"""FSDP105 beside metrics that are reduced between the backward pass and the step."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Collective

PROGRAM = """
model = Net()
for layer in model.layers:
    fully_shard(layer)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = {made}
for batch in batches:
    loss = model(batch).mean()
    loss.backward()
    {between}
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "between", "found"),
    [
        ("torch.zeros(5).to('cuda')", "dist.all_reduce(kept)", True),
        ("torch.zeros((2, 3), device='cuda')", "dist.all_reduce(kept)", True),
        ("None", "dist.all_reduce(torch.tensor([loss.item(), 1.0]))", True),
        ("None", "n = sum((one != -100).sum() for one in batch); dist.all_reduce(n)", True),
        ("None", "n = sum([one.sum() for one in batch]).clone(); dist.all_reduce(n)", True),
        ("None", "n = (batch != -100).sum(); dist.all_reduce(n)", True),
        ("None", "n = torch.stack([loss.sum(), batch.sum()]); dist.all_reduce(n)", True),
        (
            "None",
            "n = torch.stack([batch.sum(), model.head.weight.grad]); dist.all_reduce(n)",
            False,
        ),
        ("None", "n = sum(p.grad for p in model.parameters()); dist.all_reduce(n)", False),
        ("None", "n = sum(one for one in batch); dist.all_reduce(n)", False),
        ("0.0", "n = sum([one.sum() for one in batch], kept); dist.all_reduce(n)", True),
        ("None", "n = sum([one.sum() for one in batch], batch); dist.all_reduce(n)", False),
        ("None", "n = (batch != -100).sum(0); dist.all_reduce(n)", False),
        ("torch.zeros(size)", "dist.all_reduce(kept)", False),
        ("torch.zeros(4096)", "dist.all_reduce(kept)", False),
        ("None", "dist.all_reduce(model.head.weight.grad)", False),
        ("None", "[dist.all_reduce(p.grad) for p in model.parameters()]", False),
    ],
)
def test_a_tensor_of_a_few_elements_is_no_gradient(
    tmp_path: Path, made: str, between: str, found: bool
) -> None:
    text = PROGRAM.format(made=made, between=between)
    codes = [one.rule.code for one in findings(program(tmp_path, text), "FSDP105")]
    assert codes == ["FSDP105"] * found


PLAIN = [
    "functools.reduce(operator.iadd, [sizes(s) for s in model.sizes], [])",
    "functools.reduce(lambda a, b: a + b, model.sizes)",
    "numpy.logical_and.reduce(model.sizes)",
]


@pytest.mark.parametrize("call", PLAIN)
def test_a_reduction_in_one_process(tmp_path: Path, call: str) -> None:
    body = f"import functools, numpy, operator\nmodel = fully_shard(Net())\nx = {call}\n"
    assert not list(events(program(tmp_path, body), Collective))
