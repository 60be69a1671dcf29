"""FSDP501 where a tensor carries a flag that one rank sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

LOOP = """
dist.init_process_group("nccl")
rank = dist.get_rank()
model = fully_shard(Net())
for turn, batch in enumerate(batches):
    model(batch).mean().backward()
    stop = False
    if rank == 0:
        if turn >= 7:
            stop = True
    flag = torch.tensor({data})
    {agreement}
    if {test}:
        break
"""
FORMS = [("stop, dtype=torch.bool", "flag.item()"), ("[1.0 if stop else 0.0]", "flag.item() > 0"),
         ("stop", "flag"), ("[float(stop)]", "int(flag) == 1")]  # fmt: skip


def _codes(tmp_path: Path, data: str, test: str, agreement: str) -> set[str]:
    code = LOOP.format(data=data, test=test, agreement=agreement)
    return {one.rule.code for one in findings(program(tmp_path, code), "FSDP501")}


@pytest.mark.parametrize(("data", "test"), FORMS)
def test_a_tensor_keeps_the_flag_of_one_rank(tmp_path: Path, data: str, test: str) -> None:
    assert _codes(tmp_path, data, test, "pass") == {"FSDP501"}


@pytest.mark.parametrize(
    "agreement", ["dist.broadcast(flag, src=0)", "dist.all_reduce(flag)", "share(flag)"]
)
@pytest.mark.parametrize(("data", "test"), FORMS)
def test_a_collective_gives_all_ranks_the_flag(
    tmp_path: Path, data: str, test: str, agreement: str
) -> None:
    assert not _codes(tmp_path, data, test, agreement)


def test_the_message_says_that_the_rank_decides(tmp_path: Path) -> None:
    code = LOOP.format(data="stop", agreement="pass", test="flag.item()")
    (found, *_) = findings(program(tmp_path, code), "FSDP501")
    assert "each rank decides by its own rank" in found.message
    assert "the value depends on the rank here" in [text for _, text in found.related]
