"""FSDP529 knows which lists have the order of a set, and which loops depend on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def shared(names):
    box = [list(names)]
    dist.broadcast_object_list(box)
    return box[0]


net = fully_shard(nn.Linear(8, 8))
chosen = {{"a", "b"}}
{made}
for name in {visited}:
    print(name)
    {body}
"""
REDUCE = "dist.all_reduce(torch.ones(2))"


@pytest.mark.parametrize(
    ("made", "visited", "body", "found"),
    [
        ("", "chosen", REDUCE, 1),
        ("names = list(chosen)", "names", REDUCE, 1),
        ("names = list(chosen); names.append('c')", "names", REDUCE, 1),
        ("names = list(chosen); names.sort()", "names", REDUCE, 0),
        ("", "sorted(chosen)", REDUCE, 0),
        ("", "shared(chosen)", REDUCE, 0),
        ("", "chosen", "dist.barrier()", 0),
        ("", "chosen", "net(torch.ones(2, 8))", 1),
    ],
)
def test_loops_over_sets(tmp_path: Path, made: str, visited: str, body: str, found: int) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(made=made, visited=visited, body=body))
    rule = rule_by_code("FSDP529")
    assert rule is not None
    assert len(list(check(load([path]), [rule()]))) == found
