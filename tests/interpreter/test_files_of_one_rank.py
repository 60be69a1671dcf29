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
