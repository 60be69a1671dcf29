"""Two models of one class with other options, of which one program does not show the units of one."""

from __future__ import annotations

from pathlib import Path

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

HEAD = """\
import functools
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    CPUOffload, CPUOffloadPolicy, FullyShardedDataParallel as FSDP, fully_shard
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Linear):
    pass


dist.init_process_group("nccl")
torch.cuda.set_device(0)
"""
BEFORE = """
model = FSDP(nn.Sequential(Block(4, 4)), auto_wrap_policy=ModuleWrapPolicy({Block}))
other = FSDP(
    nn.Sequential(Block(4, 4)),
    auto_wrap_policy=OTHER,
    cpu_offload=CPUOffload(offload_params=True),
)
"""
AFTER = """
model = nn.Sequential(Block(4, 4))
fully_shard(model[0])
fully_shard(model)
other = nn.Sequential(Block(4, 4))
fully_shard(other[0], offload_policy=CPUOffloadPolicy())
fully_shard(other, offload_policy=CPUOffloadPolicy())
"""
STEP = "torch.optim.SGD(model.parameters())\n"
UNKNOWN = "torch.load('policy.pt')"


def offloads(tmp_path: Path, before: str, after: str) -> dict[str, Outcome]:
    paths = tmp_path / "before.py", tmp_path / "after.py"
    for path, text in zip(paths, (before, after), strict=True):
        path.write_text(HEAD + text + STEP)
    facts = compare_sides(side(paths[0]), side(paths[1])).facts
    return {one.subject: one.outcome for one in facts if one.topic.startswith("offload")}


def test_units_of_an_unknown_policy_may_have_the_option(tmp_path: Path) -> None:
    found = offloads(tmp_path, BEFORE.replace("OTHER", UNKNOWN), AFTER)
    assert found == {"model": Outcome.AGREES, "model.0": Outcome.NOT_FOLLOWED}


def test_known_units_have_the_option_or_not(tmp_path: Path) -> None:
    before = BEFORE.replace("OTHER", "ModuleWrapPolicy({nn.Embedding})")
    assert offloads(tmp_path, before, AFTER)["model.0"] is Outcome.DIFFERS


def test_an_option_that_no_unit_may_have(tmp_path: Path) -> None:
    before = BEFORE.replace("OTHER", UNKNOWN)
    before = before.replace(
        "ModuleWrapPolicy({Block})", "ModuleWrapPolicy({Block}), cpu_offload=CPUOffload(True)"
    )
    after = AFTER.replace(", offload_policy=CPUOffloadPolicy()", "")
    found = offloads(tmp_path, before, after)
    assert found == {"model": Outcome.DIFFERS, "model.0": Outcome.DIFFERS}
