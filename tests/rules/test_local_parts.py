"""FSDP301 on the parts of sharded parameters that a rank holds (`to_local()`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate

dist.init_process_group("gloo")
model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(2, 8)).sum().backward()
optimizer.step()
"""
ON_RANK_0 = 'if dist.get_rank() == 0:\n    torch.save({}, "model.pt")\n'


def codes(tmp_path: Path, body: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(HEAD + body)
    rule = rule_by_code("FSDP301")
    assert rule is not None
    return [one.rule.code for one in check(load([path]), [rule()])]


@pytest.mark.parametrize(
    "state",
    [
        "state = {k: v.to_local() for k, v in model.state_dict().items()}",
        "state = {k: v.to_local().cpu() for k, v in model.state_dict().items()}",
        "state = {n: p.to_local() for n, p in model.named_parameters()}",
        "state = {n: p.data.to_local().cpu().clone() for n, p in model.named_parameters()}",
        "state = {}\nfor n, p in model.named_parameters():\n    state[n] = p.to_local()",
        "whole = model.state_dict()\n"
        "state = {k: v.to_local() for k, v in whole.items() if 'weight' in k}",
        "state = {'model': {n: p.detach().to_local() for n, p in model.named_parameters()}}",
        "state = dict(weight=model.weight.to_local())",
    ],
)
def test_parts_of_one_rank(tmp_path: Path, state: str) -> None:
    assert codes(tmp_path, f"{state}\n{ON_RANK_0.format('state')}") == ["FSDP301"]


@pytest.mark.parametrize(
    "state",
    [
        "state = {k: v.full_tensor() for k, v in model.state_dict().items()}",
        "state = {n: p.redistribute(placements=[Replicate()]).to_local() "
        "for n, p in model.named_parameters()}",
        "state = {n: p.grad.to_local().norm() for n, p in model.named_parameters()}",
        "state = {n: p.to_local().shape for n, p in model.named_parameters()}",
        "state = [None] * 2\n"
        "dist.all_gather_object(state, {n: p.to_local() for n, p in model.named_parameters()})",
        "plain = nn.Linear(8, 8)\nstate = {n: p.data for n, p in plain.named_parameters()}",
    ],
)
def test_other_values(tmp_path: Path, state: str) -> None:
    assert codes(tmp_path, f"{state}\n{ON_RANK_0.format('state')}") == []


def test_a_file_of_each_rank(tmp_path: Path) -> None:
    body = """
state = {n: p.to_local() for n, p in model.named_parameters()}
torch.save(state, f"model-{dist.get_rank()}.pt")
"""
    assert codes(tmp_path, body) == []


UNKNOWN_GROUPS = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from timm.optim import param_groups_weight_decay

wrapper = FSDP(nn.Linear(8, 8), use_orig_params=True{options})
optimizer = torch.optim.AdamW(param_groups_weight_decay({given}, 0.1))
wrapper(torch.randn(2, 8)).sum().backward()
optimizer.step()
if dist.get_rank() == 0:
    torch.save(optimizer.state_dict(), "optimizer.pt")
"""


@pytest.mark.parametrize("given", ["wrapper", "wrapper.module"])
def test_groups_that_an_unknown_function_makes_of_a_module(tmp_path: Path, given: str) -> None:
    assert codes(tmp_path, UNKNOWN_GROUPS.format(given=given, options="")) == ["FSDP301"]


@pytest.mark.parametrize(
    ("given", "options"),
    [("model.state_dict()", ""), ("wrapper.module", ", ignored_modules=parts()")],
)
def test_groups_that_may_be_whole(tmp_path: Path, given: str, options: str) -> None:
    assert codes(tmp_path, UNKNOWN_GROUPS.format(given=given, options=options)) == []
