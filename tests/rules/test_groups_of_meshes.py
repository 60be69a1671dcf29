"""Programs whose process group is made by `init_device_mesh` alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEADER = """\
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

{group}
model = nn.Linear(4, 1)
fully_shard(model)
"""
MESH = 'mesh = init_device_mesh("cuda", (2,), mesh_dim_names=("dp",))'
BY_OWN_LOSS = """\
for x in DataLoader(data, sampler=DistributedSampler(data)):
    loss = model(x).mean()
    loss /= 2
    if not torch.isfinite(loss):
        continue
    loss.backward()
"""
EMPTY_STATE = """\
whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
torch.save(get_model_state_dict(model, options=whole), "model.pt")
"""


@pytest.mark.parametrize(("code", "lines"), [("FSDP501", BY_OWN_LOSS), ("FSDP303", EMPTY_STATE)])
@pytest.mark.parametrize(("group", "number"), [(MESH, 1), ("", 0)])
def test_several_processes(tmp_path: Path, group: str, number: int, code: str, lines: str) -> None:
    found = program(tmp_path, lines, header=HEADER.format(group=group))
    assert len(findings(found, code)) == number
