"""FSDP518 on parts of samples that the number of the rank chooses."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """\
from torch.utils.data import DataLoader, DistributedSampler


dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
group = dist.new_group(list(range(world)))
model = fully_shard(nn.Embedding(32, 8))
data = load_tokens()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(data, batch_size=2, sampler=DistributedSampler(data)):
    BODY
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
CUT = (
    "size = batch.shape[1] // world\nloss = model(batch[:, rank * size : (rank + 1) * size]).sum()"
)
OF_DICT = """\
tokens = batch["tokens"].cuda()
begin = rank * (tokens.size(1) // world)
end = begin + tokens.size(1) // world
loss = model(tokens[:, begin:end].clone()).sum()
"""


def found(tmp_path: Path, body: str) -> bool:
    lines = body.strip().replace("\n", "\n    ")
    return bool(findings(program(tmp_path, PROGRAM.replace("BODY", lines)), "FSDP518"))


@pytest.mark.parametrize("body", [CUT, OF_DICT, "batch = batch.to(rank)\n" + CUT])
def test_part_of_own_samples(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "dist.broadcast(batch, src=0)\n" + CUT,
        "dist.broadcast(batch, src=0, group=group)\n" + CUT,
        'for key in batch:\n    dist.broadcast(batch[key], src=0, group=group)\n' + OF_DICT,
        "given = [batch]\ndist.broadcast_object_list(given, src=0)\nbatch = given[0]\n" + CUT,
        "other = torch.empty_like(batch)\ndist.all_to_all_single(other, batch)\nbatch = other\n" + CUT,
        "batch = exchange(batch)\n" + CUT,
        "loss = model(batch[rank * 2 : rank * 2 + 2]).sum()",
        "loss = model(batch[:, :-1]).sum()",
        "with torch.no_grad():\n    " + CUT.replace("\n", "\n    ") + "\nloss = model(batch).sum()",
    ],
)  # fmt: skip
def test_other_parts(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)
