"""The reason that a finding gives fits what it found."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

model = nn.Linear(8, 8)
{shard}
optimizer = torch.optim.AdamW(model.parameters())
torch.save({{{saved}}}, "state.pt")
"""
FSDP1 = "model = FSDP(model)"
FSDP2 = "fully_shard(model)"
OPTIMIZER = '"optimizer": optimizer.state_dict()'
BOTH = '"model": model.state_dict(), ' + OPTIMIZER


@pytest.mark.parametrize(
    "shard, saved, of_optimizer",
    [(FSDP1, OPTIMIZER, True), (FSDP2, OPTIMIZER, True), (FSDP2, BOTH, False)],
)
def test_a_saved_state_of_an_optimizer(
    tmp_path: Path, shard: str, saved: str, of_optimizer: bool
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(shard=shard, saved=saved))
    rule = rule_by_code("FSDP301")
    assert rule is not None
    (finding,) = check(load([path]), [rule()])
    assert ("moments" in finding.why) == of_optimizer
