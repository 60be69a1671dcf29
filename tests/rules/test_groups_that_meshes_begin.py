"""Rules about several ranks, in programs whose process group a device mesh begins."""

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
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

{begin}
model = nn.Linear(4, 4)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
data = torch.randn(64, 4)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
for x in loader:
    loss = model(x).square().mean()
    if not torch.isfinite(loss):
        continue
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=options)
torch.save(state, "model.pt")
print(state["weight"])
"""
MESHES = [
    'mesh = init_device_mesh("cpu", (dist.get_world_size(),))',
    'mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("a", "b"))',
    'mesh = init_device_mesh("cuda", sizes())',
    'dist.init_process_group("gloo")\nmesh = None',
]
OF_ONE = ['mesh = init_device_mesh("cpu", (1,))', "mesh = None", "mesh = given()"]


def found(tmp_path: Path, code: str, begin: str) -> int:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(begin=begin))
    rule = rule_by_code(code)
    assert rule is not None
    return len(check(load([path]), [rule()]))


@pytest.mark.parametrize("code", ["FSDP303", "FSDP325", "FSDP501"])
@pytest.mark.parametrize("begin", MESHES)
def test_there_are_several_ranks(tmp_path: Path, code: str, begin: str) -> None:
    assert found(tmp_path, code, begin) == 1


@pytest.mark.parametrize("code", ["FSDP303", "FSDP325", "FSDP501"])
@pytest.mark.parametrize("begin", OF_ONE)
def test_there_may_be_one_rank(tmp_path: Path, code: str, begin: str) -> None:
    assert found(tmp_path, code, begin) == 0
