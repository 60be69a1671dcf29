"""Rules in programs that shard over a mesh of replicas and shards, or over a part of a mesh."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

TRAINING = """
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, TensorDataset


def build(model):
{sharding}
    return fully_shard(model, **options)


dist.init_process_group("nccl")
torch.manual_seed(0)
model = build(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 8))
for inputs, targets in DataLoader(data, batch_size=4, shuffle=True):
    {switch}F.mse_loss(model(inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
NAMED = '    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))\n'
THREE = (
    '    mesh = init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("{}", "replicate", "shard"))\n'
)
WHOLE = '    options = {"mesh": mesh}'
BOTH = '    options = {"mesh": mesh["replicate", "shard"]}'
ONE = '    options = {"mesh": mesh["shard"]}'


def codes(folder: Path, sharding: str, code: str, switch: str = "") -> set[str]:
    text = "import torch.nn.functional as F\n" + TRAINING.format(sharding=sharding, switch=switch)
    return {one.rule.code for one in findings(program(folder, text), code)}


@pytest.mark.parametrize(
    ("sharding", "found"),
    [
        (NAMED + WHOLE, True),
        (NAMED + BOTH, True),
        (THREE.format("other") + BOTH, True),
        (NAMED + ONE, False),
        (NAMED.replace("(2, 4)", "(1, 8)") + BOTH, False),
    ],
)
def test_replicas_of_a_part_of_a_mesh_are_never_reduced(
    tmp_path: Path, sharding: str, found: bool
) -> None:
    switch = "model.set_requires_all_reduce(False)\n    "
    assert codes(tmp_path, sharding, "FSDP403", switch) == ({"FSDP403"} if found else set())


@pytest.mark.parametrize(
    ("sharding", "found"),
    [
        (NAMED + WHOLE, True),
        (NAMED + BOTH, True),
        (NAMED.replace("replicate", "tp") + WHOLE, False),
        (THREE.format("other") + BOTH, False),
    ],
)
def test_replicas_train_on_the_same_batches(tmp_path: Path, sharding: str, found: bool) -> None:
    assert codes(tmp_path, sharding, "FSDP511") == ({"FSDP511"} if found else set())
