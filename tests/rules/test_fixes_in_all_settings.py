"""Fixes of programs that wrap their model with some settings only."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP
from other import parse

args = parse()
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
{wrap}
opt = torch.optim.AdamW(model.parameters())
model(torch.randn(2, 4)).sum().backward()
if args.clip > 0:
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
opt.step()
"""
CHOSEN = """
if int(os.environ.get("RANK", -1)) != -1:
    dist.init_process_group("nccl")
    if args.fsdp:
        model = FSDP(model)
    else:
        model = DDP(model)
"""
ALWAYS = """
dist.init_process_group("nccl")
model = FSDP(model)
"""


@pytest.mark.parametrize(("wrap", "fixed"), [(CHOSEN, False), (ALWAYS, True)])
def test_a_method_of_the_wrapper(tmp_path: Path, wrap: str, fixed: bool) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(wrap=wrap))
    rule = rule_by_code("FSDP404")
    assert rule is not None
    (found,) = check(load([path]), [rule()])
    assert (found.fix is not None) is fixed
