"""What else a test of the rank asks goes with the collective that moves out of it, or nothing moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

args = argparse.ArgumentParser().parse_args()
dist.init_process_group("gloo")
model = nn.Linear(8, 8)
fully_shard(model)
rank = dist.get_rank()
"""


def fixed(body: str, folder: Path) -> str | None:
    """What FSDP501's fix makes of a program's end; None where it changes nothing."""
    found = rule_by_code("FSDP501")
    assert found is not None
    path = folder / "train.py"
    path.write_text(HEAD + body)
    assert check(load([path]), [found()])
    text = fix(Workspace([path]), [found()]).texts.get(path)
    return text.removeprefix(HEAD) if text is not None else None


def in_loop(test: str, *, before: str = "", loop: str = "for step in range(9):") -> str:
    head = "".join(f"    {line}\n" for line in before.splitlines())
    return f"{loop}\n{head}    if {test}:\n        dist.barrier()\n        print('x')\n"


def moved(test: str, kept: str, *, before: str = "", loop: str = "for step in range(9):") -> str:
    head = "".join(f"    {line}\n" for line in before.splitlines())
    return f"{loop}\n{head}    if {kept}:\n        dist.barrier()\n    if {test}:\n        print('x')\n"


KEPT = {
    "a counter": ("step % 10 == 0 and rank == 0", "step % 10 == 0"),
    "behind the rank": ("rank == 0 and step % 10 == 0", "step % 10 == 0"),
    "on both sides": ("step and rank == 0 and not args.quiet", "step and not args.quiet"),
    "not either": ("not (step % 10 or rank)", "not (step % 10)"),
    "an equation": ("not (step % 10 != 0 or rank != 0)", "step % 10 == 0"),
    "in parentheses": ("(step % 10 == 0) and (rank == 0)", "step % 10 == 0"),
    "a setting": ("rank == 0 and args.save_every", "args.save_every"),
}


@pytest.mark.parametrize("case", KEPT.values(), ids=KEPT)
def test_what_is_alike_on_all_ranks_is_kept(case: tuple[str, str], tmp_path: Path) -> None:
    test, kept = case
    assert fixed(in_loop(test), tmp_path) == moved(test, kept)


def test_a_name_that_stands_for_a_counter(tmp_path: Path) -> None:
    before = 'path = None if step % 2 else "x.pt"'
    test = "rank == 0 and path is not None"
    expected = moved(test, "path is not None", before=before)
    assert fixed(in_loop(test, before=before), tmp_path) == expected


def test_enumerated_batches(tmp_path: Path) -> None:
    loop, test = "for i, batch in enumerate(torch.randn(9, 8)):", "i % 10 == 0 and rank == 0"
    assert fixed(in_loop(test, loop=loop), tmp_path) == moved(test, "i % 10 == 0", loop=loop)


def test_a_counter_of_each_rank(tmp_path: Path) -> None:
    """The name says a counter, and the value has the rank in it."""
    body = """\
def save(step):
    if step % 10 or rank:
        return
    dist.barrier()


for number in range(9):
    save(number + rank)
"""
    assert fixed(body, tmp_path) is None


def test_behind_a_return(tmp_path: Path) -> None:
    body = """\
def save(step, every=10):
    if step % every or rank:
        return
    dist.barrier()
    print("x")


for step in range(9):
    save(step)
"""
    expected = body.replace("    dist.barrier()\n", "").replace(
        "    if step", "    if not (step % every):\n        dist.barrier()\n    if step", 1
    )
    assert fixed(body, tmp_path) == expected


NO_FIX = {
    "a call": in_loop("os.path.exists('x') and rank == 0"),
    "a walrus": in_loop("rank == 0 and (due := step % 10 == 0)"),
    "a loss": in_loop("loss < 3 and rank == 0", before="loss = model(torch.ones(1, 8)).sum()"),
    "a loss's number": in_loop(
        "value < 3 and rank == 0", before="value = model(torch.ones(1, 8)).sum().item()"
    ),
    "a device": in_loop("args.gpu == 0 and rank == 0"),
    "turns of a rank's own": in_loop(
        "step % 10 == 0 and rank == 0", loop="for step in range(rank, 9, 2):"
    ),
    "a count that one side may skip": in_loop(
        "count % 2 == 0 and rank == 0",
        before="count = 0\nif os.path.exists('x'):\n    count += 1",
    ),
    "an unknown parameter": "def f(due):\n    if due and rank == 0:\n        dist.barrier()\n"
    "f(os.path.exists('x'))\n",
    "over two lines": in_loop("rank == 0 and (step %\n        10 == 0)"),
    "a barrier at the end, behind what may change the condition": (
        "for step in range(9):\n    if step % 10 == 0 and rank == 0:\n        print('x')\n"
        "        dist.barrier()\n"
    ),
}


@pytest.mark.parametrize("body", NO_FIX.values(), ids=NO_FIX)
def test_what_may_differ_stays(body: str, tmp_path: Path) -> None:
    assert fixed(body, tmp_path) is None
