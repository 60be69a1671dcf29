"""What is compared of the seeds of ranks that are spawned, and of schedules of the learning rate."""

from __future__ import annotations

from pathlib import Path

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

PROGRAM = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard


def worker(rank, world):
SEED    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = SHARD(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    for _ in range(3):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
STEP

if __name__ == "__main__":
    torch.manual_seed(0)
    mp.spawn(worker, args=(2,), nprocs=2)
"""
SEED, STEP = "    torch.manual_seed(0)\n", "        scheduler.step()\n"


def differing(folder: Path, before: tuple[str, str], after: tuple[str, str]) -> set[str]:
    sides = []
    for name, (seed, step) in (("FullyShardedDataParallel", before), ("fully_shard", after)):
        file = folder / f"{name}.py"
        text = PROGRAM.replace("SHARD", name).replace("SEED", seed).replace("STEP", step)
        file.write_text(text, encoding="utf-8")
        sides.append(side(file))
    result = compare_sides(*sides)
    return {one.topic for one in result.facts if one.outcome is Outcome.DIFFERS}


def test_the_seed_of_the_spawning_process_is_none_of_the_ranks(tmp_path: Path) -> None:
    assert differing(tmp_path, ("", STEP), ("", STEP)) == set()
    assert differing(tmp_path, (SEED, STEP), ("", STEP)) == {"seed"}


def test_a_scheduler_that_is_no_longer_stepped_differs(tmp_path: Path) -> None:
    assert differing(tmp_path, (SEED, STEP), (SEED, "")) == {"learning rate scheduler steps"}
