"""Functions that launchers, processes and command lines call."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from launch_commands import COMMANDS
from launch_processes import PROCESSES
from programs import events, findings

from fsdplint.interpreter import Program, load
from fsdplint.trace import Sharded

HEAD = """\
import functools
import multiprocessing
import sys
import torch
from torch import nn
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard
{imports}

def step(rank, world_size=2, args=None, *rest, **kw):
    model = nn.Linear(8, 8)
    {body}
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()

{definitions}

if __name__ == "__main__":
{start}
"""
BAD = "optimizer = torch.optim.Adam(model.parameters())\n    fully_shard(model)"
GOOD = "fully_shard(model)\n    optimizer = torch.optim.Adam(model.parameters())"

# Imports, definitions, and the statements that start the program.
STARTS = {**PROCESSES, **COMMANDS}


def started(folder: Path, start: str, body: str) -> Program:
    imports, definitions, call = STARTS[start]
    main = folder / "main.py"
    main.write_text(
        HEAD.format(
            imports=imports, definitions=definitions, body=body, start=textwrap.indent(call, "    ")
        )
    )
    return load([main])


@pytest.mark.parametrize("start", STARTS)
def test_a_defect_is_found_however_the_program_starts(tmp_path: Path, start: str) -> None:
    found = started(tmp_path, start, BAD)
    assert len(findings(found, "FSDP103")) == 1
    in_program = [event for trace in found.traces if trace.entry for event in trace.of(Sharded)]
    assert any(not event.callbacks for event in in_program)


@pytest.mark.parametrize("start", STARTS)
def test_a_good_program_stays_silent(tmp_path: Path, start: str) -> None:
    found = started(tmp_path, start, GOOD)
    assert findings(found, "FSDP103") == []
    assert list(events(found, Sharded))
