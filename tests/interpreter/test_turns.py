"""What one turn of a loop leaves behind for the next one."""

from __future__ import annotations

import textwrap
from pathlib import Path

from programs import events, program

from fsdplint.trace import Collective, GuardKind, SyncSwitched

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Linear(4, 1)
fully_shard(model)
"""


def switched(folder: Path, body: str) -> list[bool | None]:
    found = program(folder, textwrap.dedent(body), header=HEAD)
    return [event.enabled for event in found.traces[0].of(SyncSwitched)]


def test_a_flag_that_differs_between_turns(tmp_path: Path) -> None:
    body = """\
        for step, batch in enumerate(batches):
            last = False
            if step % 4 == 3:
                last = True
            model.set_requires_gradient_sync(last)
        """
    assert switched(tmp_path, body) == [None, None]


def test_a_flag_that_is_the_same_in_each_turn(tmp_path: Path) -> None:
    body = """\
        for step, batch in enumerate(batches):
            if step % 4 == 3:
                last = True
            else:
                last = True
            model.set_requires_gradient_sync(last)
        """
    assert switched(tmp_path, body) == [True, True]


def test_the_other_branch_does_not_see_an_assignment(tmp_path: Path) -> None:
    body = """\
        last = False
        for step, batch in enumerate(batches):
            if step % 4 != 3:
                last = True
            else:
                model.set_requires_gradient_sync(last)
            last = False
        """
    assert switched(tmp_path, body) == [False, False]


def test_a_flag_of_an_earlier_turn_guards_what_comes_later(tmp_path: Path) -> None:
    body = """\
        done = False
        for step, batch in enumerate(batches):
            if done:
                dist.barrier()
            if step > 5:
                done = True
        """
    found = program(tmp_path, textwrap.dedent(body), header=HEAD)
    guards = [event.guards for event in events(found, Collective)]
    assert [[guard.kind for guard in one] for one in guards] == [[GuardKind.VARYING]]


def test_a_model_that_a_turn_builds_stays(tmp_path: Path) -> None:
    body = """\
        held = None
        for step, batch in enumerate(batches):
            if step % 4 == 3:
                held = model
            if held is not None:
                held.set_requires_gradient_sync(False)
        """
    assert False in switched(tmp_path, body)
