"""FSDP301 on files whose names have the rank in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """
dist.init_process_group("nccl")
rank = dist.get_rank()
model = fully_shard(Net())
own = f"model_{rank}.pt"
"""


@pytest.mark.parametrize(
    ("save", "found"),
    [
        ("torch.save(model.state_dict(), own)", False),
        ("if rank == 0: torch.save(model.state_dict(), own)", True),
        (
            "if rank == 0: torch.save(model.state_dict(), 'first.pt')\n"
            "else: torch.save(model.state_dict(), own)",
            False,
        ),
        (
            "if rank == 0:\n    torch.save(model.state_dict(), own)\n"
            "else:\n    torch.save(model.state_dict(), own + '.part')",
            False,
        ),
    ],
)
def test_one_rank_alone_writes_one_part(tmp_path: Path, save: str, found: bool) -> None:
    codes = [one.rule.code for one in findings(program(tmp_path, PROGRAM + save), "FSDP301")]
    assert codes == ["FSDP301"] * found


@pytest.mark.parametrize(
    ("guarded", "found"),
    [("state = model.state_dict()\n        torch.save(state, own)", False), ("pass", True)],
)
def test_a_state_that_one_rank_cannot_take_is_not_reported(
    tmp_path: Path, guarded: str, found: bool
) -> None:
    text = f"""
from torch.distributed.fsdp import StateDictType

dist.init_process_group("nccl")
rank = dist.get_rank()
model = FSDP(Net())
own = f"model_{{rank}}.pt"
with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    if rank == 0:
        {guarded}
    whole = model.state_dict()
if rank == 0 and {found}:
    torch.save(whole, own)
"""
    codes = [one.rule.code for one in findings(program(tmp_path, text), "FSDP301")]
    assert codes == ["FSDP301"] * found
