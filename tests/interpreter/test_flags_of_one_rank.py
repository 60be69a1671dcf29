"""Flags and counters that one rank sets in some turn of a loop, so that it leaves it alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEAD = """
dist.init_process_group("nccl")
rank = dist.get_rank()
model = fully_shard(Net())
"""
STOPPER = """
class Stopper:
    def __init__(self, patience):
        self.patience, self.best, self.bad, self.stop = patience, None, 0, False

    def step(self, value):
        if self.best is None or value < self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
            if self.bad > self.patience:
                self.stop = True


stopper = Stopper(3)
"""
BREAK = """
for batch in batches:
    loss = model(batch).mean()
    {agree}
    if {where}:
        stopper.step(loss.item())
    if stopper.stop:
        break
"""
WHILE = """
class Trainer:
    done = False

    def __call__(self):
        while not self.done:
            loss = model(batch).mean()
            {agree}
            if {where}:
                stopper.step(loss.item())
            if stopper.stop:
                self.done = True


Trainer()()
"""
AGREE = "dist.all_reduce(loss)"


def codes(folder: Path, body: str) -> set[str]:
    return {one.rule.code for one in findings(program(folder, HEAD + body), "FSDP501")}


@pytest.mark.parametrize("loop", [BREAK, WHILE])
@pytest.mark.parametrize(("where", "expected"), [("rank == 0", {"FSDP501"}), ("True", set())])
def test_a_stopper_of_one_rank(loop: str, where: str, expected: set[str], tmp_path: Path) -> None:
    body = STOPPER + loop.format(where=where, agree=AGREE)
    assert codes(tmp_path, body) == expected


def test_a_stopper_whose_flag_the_ranks_agree_on(tmp_path: Path) -> None:
    sent = "    flag = [stopper.stop]\n    dist.broadcast_object_list(flag, src=0)\n    if flag[0]:"
    body = BREAK.replace("    if stopper.stop:", sent).format(where="rank == 0", agree=AGREE)
    assert codes(tmp_path, STOPPER + body) == set()


COUNTER = """
count = 0
for batch in batches:
    loss = model(batch).mean()
    if {where}:
        count += 1
    if {test}:
        break
"""


@pytest.mark.parametrize(
    ("where", "test", "expected"),
    [
        ("rank == 0", "count > 3", {"FSDP501"}),
        ("rank == 0 and random.random() < 0.5", "count >= 3", {"FSDP501"}),
        ("True", "count > 3", set()),
    ],
)
def test_a_counter_of_one_rank(where: str, test: str, expected: set[str], tmp_path: Path) -> None:
    assert codes(tmp_path, "import random\n" + COUNTER.format(where=where, test=test)) == expected
