"""A finding that depends on the sharding names the conditions of the sharding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import libcst as cst

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

args = argparse.ArgumentParser().parse_args()
dist.init_process_group("gloo")
model = nn.Linear(8, 8)
"""


def conditions(code: str, body: str, folder: Path) -> list[list[str]]:
    """The conditions of each finding of a rule in a program."""
    rule = rule_by_code(code)
    assert rule is not None
    path = folder / "train.py"
    path.write_text(HEAD + body)
    return [[str(guard) for guard in one.configuration] for one in check(load([path]), [rule()])]


FORWARD = "if dist.get_rank() == 0:\n    model(torch.ones(1, 8))\n"
STATE = "torch.save(model.state_dict(), 'weights.pt')\n"


def test_a_run_without_the_sharding_has_no_finding(tmp_path: Path) -> None:
    sharding = "if args.shard:\n    model = FSDP(model)\n"
    assert conditions("FSDP501", sharding + FORWARD, tmp_path) == [["`args.shard` is true"]]


def test_another_wrapper_in_the_other_run(tmp_path: Path) -> None:
    wrapping = "model = FSDP(model) if args.shard else DDP(model)\n"
    assert conditions("FSDP207", wrapping + STATE, tmp_path) == [["`args.shard` is true"]]


def test_a_finding_of_both_runs_needs_no_sharding(tmp_path: Path) -> None:
    body = "if args.shard:\n    model = FSDP(model)\nif dist.get_rank() == 0:\n    dist.barrier()\n"
    assert conditions("FSDP501", body, tmp_path) == [[]]


def test_a_model_that_is_always_sharded(tmp_path: Path) -> None:
    body = "model = FSDP(model)\nif args.quiet:\n    print('quiet')\n" + FORWARD
    assert conditions("FSDP501", body, tmp_path) == [[]]


def test_conditions_of_both_are_named_once(tmp_path: Path) -> None:
    body = "if args.shard:\n    model = FSDP(model)\nif args.shard and args.save:\n    " + STATE
    (found,) = conditions("FSDP207", body, tmp_path)
    assert len(found) == len(set(found))


def test_a_run_without_sharding_may_move_the_model(tmp_path: Path) -> None:
    body = (
        "from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard\n"
        "if args.shard:\n    fully_shard(model, offload_policy=CPUOffloadPolicy())\n"
        'model.to("cuda")\nmodel(torch.ones(1, 8)).sum().backward()\n'
    )
    assert conditions("FSDP135", body, tmp_path) == [["`args.shard` is true"]]


POLICY = """\
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if args.mixed else None
"""


def test_an_option_that_a_setting_decides(tmp_path: Path) -> None:
    body = POLICY + "if args.shard:\n    fully_shard(model, mp_policy=policy)\n"
    (found,) = conditions("FSDP117", body, tmp_path)
    assert sorted(found) == ["`args.mixed` is false", "`args.shard` is true"]


def test_an_option_in_a_dict_of_arguments(tmp_path: Path) -> None:
    options = "options = {'mp_policy': policy}\n"
    body = POLICY + options + "fully_shard(model, **options)\n"
    assert conditions("FSDP117", body, tmp_path) == [["`args.mixed` is false"]]


EPOCHS = """\
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def train(data):
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=2, sampler=sampler)
    for epoch in range(3):
        if args.verbose:
            print(epoch)
        for (batch,) in loader:
            model(batch).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(TensorDataset(torch.ones(64, 8)))
"""


def test_a_test_whose_other_outcome_no_run_tried(tmp_path: Path) -> None:
    """Of a program that is too large, the run without the finding may be missing."""
    rule = rule_by_code("FSDP512")
    assert rule is not None
    path = tmp_path / "train.py"
    path.write_text(HEAD + EPOCHS)
    found = load([path])
    assert [finding.rule.code for finding in check(found, [rule()])] == ["FSDP512"]
    (source,) = found.sources.values()
    (test,) = [node.test for node in walk(source.tree) if isinstance(node, cst.If)]
    for trace in found.traces:
        trace.untried_tests = frozenset({test})
    assert not check(found, [rule()])


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from walk(child)
