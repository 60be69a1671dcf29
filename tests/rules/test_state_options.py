"""Options of states that the program sets after it has made them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import os

import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions as Options,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
net = fully_shard(nn.Linear(8, 8))
state = get_model_state_dict(net, options=Options(full_state_dict=True))
chosen = Options(broadcast_from_rank0=True)
{change}
set_model_state_dict(net, state, options=chosen)
"""


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("", 1),
        ("chosen.strict = False", 1),
        ("chosen.full_state_dict = True", 0),
        ("setattr(chosen, 'full_state_dict', True)", 0),
        ("chosen.broadcast_from_rank0 = False", 0),
        ("if os.environ.get('FULL'):\n    chosen.full_state_dict = True", 1),
    ],
)
def test_options_that_the_program_sets(tmp_path: Path, change: str, found: int) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(change=change))
    rule = rule_by_code("FSDP328")
    assert rule is not None
    assert len(list(check(load([path]), [rule()]))) == found
