"""FSDP303 on programs whose rank is a constant with some settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--multi", action="store_true")
args = parser.parse_args()
dist.init_process_group("gloo")
rank = 0
if args.multi:
    rank = {rank}
model = nn.Linear(8, 8)
fully_shard(model)
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=options)
if rank == 0:
    torch.save(state, "model.pt")
"""


@pytest.mark.parametrize(("rank", "number"), [("dist.get_rank()", 0), ("0", 1)])
def test_the_rank_of_a_single_process(tmp_path: Path, rank: str, number: int) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(rank=rank))
    rule = rule_by_code("FSDP303")
    assert rule is not None
    assert len(check(load([path]), [rule()])) == number
