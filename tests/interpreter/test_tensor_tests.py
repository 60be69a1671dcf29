"""Tests of one of several tensors: a parameter of a model, or its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import OptimizerBuilt, RawRead

GROUPS = """\
model = Net()
decay, rest = [], []
for name, parameter in model.named_parameters():
    if not parameter.requires_grad:
        continue
    if {test}:
        rest.append(parameter)
    else:
        decay.append(parameter)
optimizer = torch.optim.AdamW([{{"params": decay}}, {{"params": rest, "weight_decay": 0.0}}])
dist.init_process_group("gloo")
fully_shard(model)
for step in range(3):
    model(torch.ones(1)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "test",
    [
        "parameter.ndim <= 1",
        "parameter.dim() < 2 or 'norm' in name",
        "len(parameter.shape) == 1 or name.endswith('bias')",
        "'embed' in name",
        "not parameter.ndim >= 2",
    ],
)
def test_each_group_gets_its_parameters(tmp_path: Path, test: str) -> None:
    found = program(tmp_path, GROUPS.format(test=test))
    assert all(event.complete for event in events(found, OptimizerBuilt))
    assert len(findings(found, "FSDP103")) == 1


READS = """\
def due(step):
    return step % 10 == 0

def is_plain(tensor):
    return type(tensor) is torch.Tensor

dist.init_process_group("gloo")
model = Net()
fully_shard(model)
for step in range(3):
    model(torch.ones(1)).sum().backward()
    {outer}:
        for name, value in model.{state}.items():
            {inner}:
                print(name, value.cpu().numpy())
"""
# Whether the test leaves sharded tensors in what is read.
OUTER = {
    "if due(step)": True,
    "if step > 1": True,
    "if args.running_export": True,
}
INNER = {
    "if True": True,
    "if is_plain(value)": False,
    "if value.ndim == 1": False,
    "if 'running' in name": False,
}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
def test_a_test_of_the_tensor_may_tell_its_kind(tmp_path: Path, outer: str, inner: str) -> None:
    body = READS.format(outer=outer, inner=inner, state="state_dict()")
    found = program(tmp_path, body)
    assert any(events(found, RawRead))
    assert bool(findings(found, "FSDP306")) == (OUTER[outer] and INNER[inner])
