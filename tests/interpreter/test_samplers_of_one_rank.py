"""FSDP511 on a `DistributedSampler` that each rank makes for the same rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """
import os
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
rank, alone = int(os.environ.get("RANK", 0)), 0
data = TensorDataset(torch.zeros(16, dtype=torch.long))
sampler = DistributedSampler(data, {arguments})
loader = DataLoader(data, batch_size=2, sampler=sampler)
model = fully_shard(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("num_replicas=1, rank=0, shuffle=True", True),
        ("1, 0", True),
        ("num_replicas=dist.get_world_size(), rank=0", True),
        ("num_replicas=dist.get_world_size(), rank=rank", False),
        ("num_replicas=1, rank=alone", False),
        ("", False),
    ],
)
def test_a_constant_rank_gives_all_ranks_one_part(
    tmp_path: Path, arguments: str, found: bool
) -> None:
    text = PROGRAM.format(arguments=arguments)
    codes = [one.rule.code for one in findings(program(tmp_path, text), "FSDP511")]
    assert codes == ["FSDP511"] * found
