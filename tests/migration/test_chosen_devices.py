"""Devices that a list chooses for each rank, where the program sets another one as the current device."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated

PROGRAM = """
def shard(model, gpus):
    rank = dist.get_rank()
    device = torch.device(f"cuda:{gpus[rank]}")
    MORE
    return FSDP(model.to(device), device_id=device)


model = shard(Net(), [int(gpu) for gpu in os.environ["GPUS"].split(",")])
"""
SETS = "torch.cuda.set_device(device)"


@pytest.mark.parametrize("more", ["pass", "torch.cuda.set_device(rank)"])
def test_the_device_becomes_the_current_one(more: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, PROGRAM.replace("MORE", more))
    assert SETS in text and text.index(SETS) < text.index("fully_shard(")


@pytest.mark.parametrize("more", [SETS, "torch.cuda.set_device(gpus[rank])"])
def test_the_program_sets_it(more: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, PROGRAM.replace("MORE", more))
    assert text.count("set_device(") == 1


def test_the_rank_itself(tmp_path: Path) -> None:
    text = migrated(tmp_path, "model = FSDP(Net(), device_id=dist.get_rank() % 4)")
    assert "set_device(" not in text
