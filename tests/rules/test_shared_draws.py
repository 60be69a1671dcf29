"""FSDP520: batches that every rank draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import argparse
import os
import random
import time
import types
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--data", default="sums")
args = parser.parse_args()


class Sums:
    def __init__(self, generator):
        self.generator = generator

    def batch(self, number, turn=0):
        {draw}
        return x, x.sum(1, keepdim=True)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
local_rank = int(os.environ.get("LOCAL_RANK", 0))
device = torch.device("cuda", local_rank)
torch.manual_seed({model_seed})
model = nn.Linear(6, 1).to(device)
fully_shard(model{mesh})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
table = torch.ones(100, 6)
sums = Sums({generator})
for step in range(8):
    x, y = sums.batch(4, step)
    {select}
    loss = F.mse_loss(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    {after}
{end}
"""
OF_TORCH = "x = torch.randn(number, 6, generator=self.generator)"
OF_TURN = "x = torch.randn(number, 6, generator=self.generator.manual_seed({}))"
USUAL = {
    "draw": OF_TORCH,
    "generator": "torch.Generator().manual_seed(args.seed)",
    "model_seed": "0",
    "mesh": "",
    "select": "pass",
    "after": "if rank == 0: print(f'{step} of rank {rank}: {loss.item()}')",
    "end": "if rank == 0: torch.save(table, 'done.pt')",
}


def findings(folder: Path, **parts: str) -> list[str]:
    path = folder / "train.py"
    path.write_text(PROGRAM.format(**{**USUAL, **parts}))
    program = load([path])
    return [one.message for one in check(program, [rule_by_code("FSDP520")()])]


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"generator": "torch.Generator('cpu').manual_seed(args.seed * 1000 + 7)"},
        {"draw": OF_TURN.format("turn"), "generator": "torch.Generator()"},
        {"draw": OF_TURN.format("args.seed + 10 * turn"), "generator": "torch.Generator()"},
        {
            "draw": "x = torch.tensor(self.generator.normal(size=(number, 6)))",
            "generator": "np.random.default_rng([args.seed, 3])",
        },
        {
            "draw": "x = table[self.generator.sample(range(100), number)]",
            "generator": "random.Random(args.seed)",
        },
        {"draw": "x = table[torch.randint(len(table), (number,))]"},
        {"after": "if step % 2 == 0 and rank == 0: torch.save(table, f'of_{rank}.pt')"},
        {"end": "sample = torch.randn(3, generator=torch.Generator().manual_seed(rank))"},
        {"mesh": ", mesh=init_device_mesh('cuda', (world,), mesh_dim_names=('dp',))"},
        {"after": "elapsed = time.time(); print(elapsed, flush=rank == 0)"},
    ],
)
def test_the_same_draws_are_found(tmp_path: Path, parts: dict[str, str]) -> None:
    (message,) = findings(tmp_path, **parts)
    assert message.startswith("every rank draws the same batches here")


@pytest.mark.parametrize(
    "seed",
    ["turn + rank", "rank + turn", "args.seed + turn + rank", "2 * args.seed + rank - -turn"],
)
def test_seeds_that_ranks_share_in_other_turns(tmp_path: Path, seed: str) -> None:
    found = findings(tmp_path, draw=OF_TURN.format(seed), generator="torch.Generator()")
    wanted = [] if " - " in seed else ["ranks draw the batches of other ranks again"]
    assert [message.partition(":")[0] for message in found] == wanted


@pytest.mark.parametrize(
    "parts",
    [
        {"generator": "torch.Generator().manual_seed(args.seed + rank)"},
        {"generator": "torch.Generator().manual_seed(hash((args.seed, rank)))"},
        {"generator": "torch.Generator().manual_seed(int(time.time()))"},
        {"generator": "torch.Generator().manual_seed(int(os.environ['PMI_RANK']))"},
        {"draw": OF_TURN.format("turn * world + rank"), "generator": "torch.Generator()"},
        {"draw": OF_TURN.format("100 * turn + rank"), "generator": "torch.Generator()"},
        {"draw": OF_TURN.format("turn + 100 * rank"), "generator": "torch.Generator()"},
        {"generator": "np.random.default_rng()", "draw": "x = self.generator.normal(size=(4, 6))"},
        {"select": "x, y = x[rank::world], y[rank::world]"},
        {"select": "x, y = x.chunk(world)[rank], y.chunk(world)[rank]"},
        {"select": "x = x[[i for i in range(4) if i % world == rank]]"},
        {"select": "dist.scatter(x, list(x) if rank == 0 else None)"},
        {"select": "x = x + torch.randn_like(x)"},
        {"draw": "x = torch.randn(number, 6)"},  # made-up data, as in a demonstration
        {"draw": "x = table[torch.randint(len(table), (number,))]", "model_seed": "rank"},
        {"draw": "import webdataset; x = webdataset.next(self.generator)"},
        {"mesh": ", mesh=init_device_mesh('cuda', (2, world // 2), mesh_dim_names=('dp', 'tp'))"},
        {"after": "if rank == 1: torch.manual_seed(3)"},
        {"select": "x = torch.tensor(np.load(f'part_{rank}.npy'))"},
        {"select": "x = torch.load(Path('parts').joinpath(f'{rank}.pt'))"},
        {"select": "x = torch.tensor(eval(Path(f'parts/{rank}.txt').read_text()))"},
        {"select": "table.rows.append(rank); x = x[table.rows[-1] :]"},
        {"generator": "torch.Generator().manual_seed(types.SimpleNamespace(rank=rank).rank)"},
        {"generator": "torch.Generator().manual_seed(next(iter((rank,))))"},
        {"generator": "torch.Generator().manual_seed(getattr(args, 'number', rank))"},
        {"generator": "torch.Generator().manual_seed({'seed': rank}['seed'])"},
        {"generator": "torch.Generator().manual_seed([3, rank].pop())"},
        {"generator": "torch.Generator().manual_seed(max(rank, 0))"},
        {"generator": "torch.Generator().manual_seed(int(f'{rank}1'))"},
        {"generator": "torch.Generator().manual_seed(sum([args.seed, rank]))"},
    ],
)
def test_ranks_with_data_of_their_own(tmp_path: Path, parts: dict[str, str]) -> None:
    assert findings(tmp_path, **parts) == []


@pytest.mark.parametrize(("code", "number"), [("x * 2", 1), ("x[rank::world]", 0)])
def test_functions_of_a_table_are_judged_by_their_code(
    tmp_path: Path, code: str, number: int
) -> None:
    table = f"TASKS = {{'sums': lambda x: x, 'others': lambda x: {code}}}"
    found = findings(tmp_path, select=f"{table}; x = TASKS[args.data](x)")
    assert len(found) == number


@pytest.mark.parametrize(
    ("begin", "number"),
    [
        ("if os.environ.get('IS_DISABLED'): raise SystemExit", 1),
        ("if args.data == 'own': table = table[rank::world]", 0),
    ],
)
def test_other_settings(tmp_path: Path, begin: str, number: int) -> None:
    """A run that does not train contradicts no finding, and one with data of the ranks does."""
    path = tmp_path / "train.py"
    text = PROGRAM.format(**USUAL)
    path.write_text(text.replace("sums = Sums(", f"{begin}\nsums = Sums("))
    program = load([path])
    assert len(list(check(program, [rule_by_code("FSDP520")()]))) == number
