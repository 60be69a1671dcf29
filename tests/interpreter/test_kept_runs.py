"""Which runs of an entry are kept as traces: each event that a run shows is in one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.trace import ProcessGroupInit

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

"""
TAIL = """
model = fully_shard(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
BRANCHES = """\
if torch.cuda.is_available():
    dist.init_process_group("nccl")
else:
    dist.init_process_group("gloo")
"""
EARLY_RETURN = """\
def setup():
    if torch.cuda.is_available():
        dist.init_process_group("nccl")
        return "cuda"
    dist.init_process_group("gloo")
    return "cpu"
device = setup()
"""


@pytest.mark.parametrize("code", [BRANCHES, EARLY_RETURN], ids=["branches", "early return"])
def test_the_process_group_of_each_branch_is_in_a_trace(tmp_path: Path, code: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(HEAD + code + TAIL)
    traces = load([path]).traces
    assert {e.backend for trace in traces for e in trace.of(ProcessGroupInit)} == {"nccl", "gloo"}
    assert len(traces) == 2


def test_a_run_that_shows_nothing_new_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    code = 'dist.init_process_group("gloo")\nif torch.cuda.is_available():\n    print("cuda")\n'
    path.write_text(HEAD + code + TAIL)
    assert len(load([path]).traces) == 1
