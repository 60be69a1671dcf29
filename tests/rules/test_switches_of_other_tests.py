"""FSDP403 where the switch and the step depend on different tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

args = argparse.ArgumentParser().parse_args()
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
model = fully_shard(nn.Linear(4, 4), mesh=mesh)
opt = torch.optim.AdamW(model.parameters())
batches = [torch.ones(2, 4) for _ in range(args.batches)]
n = args.accumulate
"""
NESTED = """
for step in range(args.steps):
    for micro in range(n):
        model.{api}({switch})
        model(torch.ones(2, 4)).sum().backward()
    opt.step()
    opt.zero_grad()
"""
FLAT = """
for i, x in enumerate(batches):
    model.{api}({switch})
    (model(x).sum() / n).backward()
    if {test}:
        opt.step()
        opt.zero_grad()
"""
SYNC = "set_requires_gradient_sync"


def found_in(folder: Path, body: str) -> int:
    file = folder / "main.py"
    file.write_text(HEAD + body)
    rule = rule_by_code("FSDP403")
    assert rule is not None
    return len(check(load([file]), [rule()]))


@pytest.mark.parametrize("api", [SYNC, "set_requires_all_reduce"])
@pytest.mark.parametrize(
    ("switch", "found"),
    [
        ("(step + 1) % n == 0", True),
        ("step % n == n - 1", True),
        ("not step % n", True),
        ("True if (step + 1) % n == 0 else False", True),
        ("micro == n - 1", False),
        ("(micro + 1) % n == 0", False),
        ("micro + 1 == n or step == 0", False),
        ("step % args.other == 0 or micro == n - 1", False),
        ("is_last(step)", False),
    ],
)
def test_steps_after_several_backwards(
    tmp_path: Path, api: str, switch: str, *, found: bool
) -> None:
    assert found_in(tmp_path, NESTED.format(api=api, switch=switch)) == found


@pytest.mark.parametrize(
    ("switch", "test", "found"),
    [
        ("i == len(batches) - 1", "(i + 1) % n == 0", False),
        ("i + 1 == len(batches)", "i % n == n - 1", False),
        ("i % 4 == 3", "(i + 1) % n == 0", False),
        ("i % n == n - 1", "(i + 1) % 4 == 0", False),
        ("(i + 1) % n == 0", "(i + 1) % n < 2", False),
        ("(i + 1) % n == 0", "True", False),
        ("(i + 1) % n == 0", "(i + 1) % n == 0 or i + 1 == len(batches)", True),
        ("(i + 1) % n == 0", "i % n == n - 1", False),
        ("(i + 1) % n == 0 or i == len(batches) - 1", "(i + 1) % n == 0", False),
        ("(i + 1) % n == 0", "(i + 1) % args.steps_every == 0", False),
        ("(i + 1) % n == 0", "(i + 1) % n == 0 and finite(x)", False),
        ("i != 0", "(i + 1) % n == 0", False),
        ("(i + 1) % n == 0", "ready(i)", False),
    ],
)
def test_steps_in_the_same_loop(tmp_path: Path, switch: str, test: str, *, found: bool) -> None:
    assert found_in(tmp_path, FLAT.format(api=SYNC, switch=switch, test=test)) == found


COLLECTED = """
while True:
    micro = []
    while len(micro) < n:
        micro.append(next(stream))
    for i, x in enumerate(micro):
        model.{api}({switch})
        model(x).sum().backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    "switch", ["i == n - 1", "i == 3", "(i + 1) % n == 0", "i == len(micro) - 1"]
)
def test_lists_whose_length_is_the_number(tmp_path: Path, switch: str) -> None:
    assert found_in(tmp_path, COLLECTED.format(api=SYNC, switch=switch)) == 0


@pytest.mark.parametrize("switch", ["i == n - 1", "(i + 1) % n == 0"])
def test_loops_of_a_number_of_turns(tmp_path: Path, switch: str) -> None:
    body = COLLECTED.replace("enumerate(micro)", "enumerate(micro[:4])")
    assert found_in(tmp_path, body.format(api=SYNC, switch=switch)) == 0
    body = COLLECTED.replace("for i, x in enumerate(micro)", "x = micro[0]\n    for i in range(4)")
    assert found_in(tmp_path, body.format(api=SYNC, switch=switch)) == 0


def test_a_counter_of_the_program_may_be_anything(tmp_path: Path) -> None:
    body = FLAT.format(api=SYNC, switch="count % n == 0", test="(i + 1) % n == 0")
    body = "count = args.first\n" + body.replace("    model.set", "    count += 1\n    model.set")
    assert found_in(tmp_path, body) == 0
