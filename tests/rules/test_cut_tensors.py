"""FSDP517: tensors that each rank cuts at a number that its own data give."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

ROLLOUTS = """
dist.init_process_group("gloo")
net = fully_shard(nn.Linear(8, 8))
draws = torch.Generator().manual_seed(dist.get_rank())


def cut(ids, mask):
    used = int(mask.sum(1).max())
    return {cut}


for step in range(3):
    ids = torch.randint(0, 9, (4, 8), generator=draws)
    ids = cut(ids, ids > 3)
    {between}
    replies = {part}
    every = [torch.empty_like(replies) for _ in range(dist.get_world_size())]
    dist.all_gather(every, replies.contiguous())
    net(torch.cat(every).float()).sum().backward()
"""


def is_found(folder: Path, cut: str, between: str = "pass", part: str = "ids") -> bool:
    code = ROLLOUTS.format(cut=cut, between=between, part=part)
    return bool(findings(program(folder, code), "FSDP517"))


@pytest.mark.parametrize("cut", ["ids[:, :used]", "ids[:, used:]", "ids[:, 2 : 2 + used]"])
@pytest.mark.parametrize("part", ["ids", "ids[:, 1:]", "ids.long()"])
def test_a_cut_at_a_number_of_the_rank(tmp_path: Path, cut: str, part: str) -> None:
    assert is_found(tmp_path, cut, part=part)


@pytest.mark.parametrize(
    ("cut", "between", "part"),
    [
        ("ids[:, used : used + 4]", "pass", "ids"),
        ("ids[:, :6]", "pass", "ids"),
        ("ids[:, :used]", "pass", "ids[:, :4]"),
        ("ids[:, :used]", "pass", "ids[0]"),
        ("ids[:, :used]", "ids = F.pad(ids, (0, 8 - ids.shape[1]))", "ids"),
        ("ids", "ids = ids[:, : int(shared)]", "ids"),
    ],
)
def test_a_part_of_one_size(tmp_path: Path, cut: str, between: str, part: str) -> None:
    assert not is_found(tmp_path, cut, between, part)


def test_a_number_that_all_ranks_have(tmp_path: Path) -> None:
    between = (
        "longest = (ids > 3).sum(1).max()\n"
        "    dist.all_reduce(longest, op=dist.ReduceOp.MAX)\n"
        "    ids = ids[:, : int(longest)]"
    )
    assert not is_found(tmp_path, "ids", between)
