"""What FSDP1's chosen type of states says of a state."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.trace import StateTaken

PROGRAM = """
import torch
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = FSDP(torch.nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, {configs}):
    state = model.state_dict()
    steps = FSDP.optim_state_dict(model, optimizer)
"""


@pytest.mark.parametrize(
    ("configs", "of_model", "of_optimizer"),
    [
        ("FullStateDictConfig(rank0_only=True)", True, False),
        ("FullStateDictConfig(), FullOptimStateDictConfig(rank0_only=True)", False, True),
        ("optim_state_dict_config=FullOptimStateDictConfig(rank0_only=True)", False, True),
    ],
)
def test_model_and_optimizer_have_configurations_of_their_own(
    tmp_path: Path, configs: str, of_model: bool, of_optimizer: bool
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(configs=configs), encoding="utf-8")
    (trace, *_) = load([path]).traces
    found = {event.api: event.rank0_only for event in trace.of(StateTaken)}
    assert found == {"state_dict": of_model, "FSDP.optim_state_dict": of_optimizer}
