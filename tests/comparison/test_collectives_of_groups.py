"""Collectives of the ranks that share a model, where other ranks of the program have no model."""

from __future__ import annotations

from pathlib import Path

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

HEAD = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType, fully_shard,
)


def train(rank, group):
"""
TAIL = """
    if rank == 0:
        torch.save(state, "model.pt")


dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
group = dist.new_group([0, 1])
if rank < 2:
    train(rank, group)
"""
BEFORE = """\
    model = FSDP(nn.Linear(8, 8), process_group=group)
    whole = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, whole):
        state = model.state_dict()
"""
AFTER = """\
    model = fully_shard(nn.Linear(8, 8), mesh=DeviceMesh.from_group(group, "cuda"))
    state = {}
    for name, value in model.state_dict().items():
        value = value.full_tensor()
        state[name] = value.cpu()
"""


def collectives(folder: Path, after: str) -> set[str]:
    """The collectives that only one of the programs has."""
    sides = []
    for name, body in (("before", BEFORE), ("after", after)):
        file = folder / f"{name}.py"
        file.write_text(HEAD + body + TAIL, encoding="utf-8")
        sides.append(side(file))
    facts = compare_sides(*sides).facts
    found = [one for one in facts if one.outcome is Outcome.DIFFERS]
    return {one.subject for one in found if one.topic == "collective"}


def test_all_ranks_that_shard_a_model_gather_it(tmp_path: Path) -> None:
    assert collectives(tmp_path, AFTER) == set()


def test_one_of_the_ranks_gathers_it(tmp_path: Path) -> None:
    after = AFTER.replace(
        "        value = value.full", "        if rank == 0:\n            value = value.full"
    )
    assert collectives(tmp_path, after) == {"full_tensor on one rank"}
