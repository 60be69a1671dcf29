"""FSDP702: which loops make another number of turns on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = Path("fixtures/rules/FSDP702/strided_validation.bad.py").read_text()
PROGRAM = PROGRAM.replace("  # <- FSDP702", "")
INDICES = "indices = range(dist.get_rank(), args.samples, dist.get_world_size())"
SAMPLER = "sampler=indices"
LOADER = "DataLoader(data, batch_size=args.batch_size, sampler=indices)"
LOOP = "    for (batch,) in loader:\n"
BODY = "        total += model(batch).square().mean()\n"
RANK = "rank, world = dist.get_rank(), dist.get_world_size()\n"


def found(folder: Path, *changes: tuple[str, str]) -> bool:
    program = PROGRAM
    for old, new in changes:
        assert old in program
        program = program.replace(old, new)
    path = folder / "train.py"
    path.write_text(program)
    rule = rule_by_code("FSDP702")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [(INDICES, RANK + "indices = range(rank, 97, world)")],
        [(INDICES, RANK + "indices = list(range(rank, args.samples, world))")],
        [(INDICES, RANK + "indices = range(args.samples)[rank::world]")],
        [(INDICES, RANK + "indices = list(range(97))[rank::world]")],
        [(INDICES, RANK + "every = [i for i in range(args.samples)]\nindices = every[rank::world]")],
        [(LOADER, "DataLoader(torch.utils.data.Subset(data, indices), args.batch_size)")],
        [("args.batch_size, ", "1, ")],
        [(", batch_size=args.batch_size", "")],
        [(LOOP, "    for i, (batch,) in enumerate(loader):\n")],
        [(LOOP, "    batches = iter(loader)\n    while (batch := next(batches, None)) is not None:\n")],
        [("97", "33"), (SAMPLER, SAMPLER + ", drop_last=True"), ("16", "17")],
    ],
)  # fmt: skip
def test_unequal_turns(tmp_path: Path, changes: list[tuple[str, str]]) -> None:
    assert found(tmp_path, *changes)


@pytest.mark.parametrize(
    "changes",
    [
        [("97", "96")],
        [("97", "95")],  # 48 and 47 samples are three batches of 16
        [("default=97", "required=True")],
        [("16)", "args.samples)")],
        [(SAMPLER, SAMPLER + ", drop_last=True")],
        [(LOADER, "DataLoader(data, args.batch_size, sampler=indices[:9])")],
        [(INDICES, "indices = range(dist.get_rank(), args.samples, 2)")],
        [(INDICES, "indices = range(0, args.samples, dist.get_world_size())")],
        [(INDICES, "indices = range(dist.get_rank(), len(open('x').read()), dist.get_world_size())")],
        [(LOOP, "    for i, (batch,) in zip(range(3), loader):\n")],
        [(LOOP, LOOP.replace("(batch,)", "i, (batch,)").replace("loader", "enumerate(loader)")
            + "        if i == 3:\n            break\n")],
        [(BODY, "        total += batch.sum()\n")],
        [(BODY, BODY + "    model(batch)\n")],
        [("fully_shard(model[0])\nfully_shard(model)\n", "")],
        [("fully_shard(model[0])\n", "")],  # the root stays gathered
    ],
)  # fmt: skip
def test_equal_or_unknown_turns(tmp_path: Path, changes: list[tuple[str, str]]) -> None:
    assert not found(tmp_path, *changes)
