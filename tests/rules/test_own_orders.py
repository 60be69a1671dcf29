"""FSDP516 on orders that the program draws itself: which ranks draw the same one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = fully_shard(nn.Linear(8, 8))
data = torch.randn(64, 8)
size = 64 // world


class Batches:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world

    def __call__(self, epoch, own):
        seed = epoch * self.world + self.rank if own else epoch
        g = torch.Generator().manual_seed(seed)
        order = torch.randperm(64, generator=g).tolist()
        return order[self.rank :: self.world]


mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
place = mesh["dp"].get_local_rank()
own = torch.Generator().manual_seed(7 + rank)
same = torch.Generator().manual_seed(7)
for epoch in range(3):
"""


def found(tmp_path: Path, body: str) -> bool:
    path = tmp_path / "program.py"
    lines = [*body.splitlines(), "model(data[order]).sum().backward()"]
    path.write_text(HEAD + "".join(f"    {line}\n" for line in lines))
    rule = rule_by_code("FSDP516")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "body",
    [
        "order = torch.randperm(64, generator=own)[rank::world]",
        "order = torch.randperm(64, generator=own)\norder = order[rank * size : (rank + 1) * size]",
        "torch.manual_seed(epoch * world + rank)\norder = torch.randperm(64)[rank::world]",
        "order = np.random.default_rng(epoch * world + rank).permutation(64)[rank::world]",
        "np.random.seed(rank)\norder = np.random.permutation(64)[rank::world]",
        "order = torch.randperm(64, generator=own).tolist()[rank::world]",
        "order = Batches(rank, world)(epoch, True)",
        "g = torch.Generator().manual_seed(epoch + place)\n"
        "order = torch.randperm(64, generator=g)[place * 32 : (place + 1) * 32]",
        "g = torch.Generator().manual_seed(epoch + place)\n"
        "order = torch.randperm(64, generator=g).tolist()[place::2]",
        "whole = torch.randperm(64, generator=own)\n"
        "order = torch.tensor([whole[i] for i in range(rank, 64, world)])",
        "whole = torch.randperm(64, generator=own)\n"
        "order = torch.stack([whole[i + rank] for i in range(0, 64, world)])",
        "whole, at, picked = torch.randperm(64, generator=own), 0, []\n"
        "while at + world <= len(data):\n"
        "    picked.append(whole[at + rank])\n"
        "    at += world\n"
        "order = torch.stack(picked)",
        "whole, picked = torch.randperm(64, generator=own), []\n"
        "for at in range(0, 64, world):\n"
        "    window = whole[at : at + world]\n"
        "    picked.append(window[rank])\n"
        "order = torch.stack(picked)",
    ],
)
def test_an_order_of_each_rank(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "order = torch.randperm(64, generator=same)[rank::world]",
        "order = torch.randperm(64, generator=own)[:size]",
        "order = torch.arange(rank, 64, world)[torch.randperm(size, generator=own)]",
        "torch.manual_seed(epoch)\norder = torch.randperm(64)[rank::world]",
        "order = np.random.default_rng([7, epoch]).permutation(64)[rank::world]",
        "order = torch.randperm(64, generator=own)\ndist.broadcast(order, src=0)\n"
        "order = order[rank::world]",
        "order = torch.randint(64, (64,), generator=own)[rank::world]",
        "order = Batches(rank, world)(epoch, False)",
        "g = torch.Generator().manual_seed(epoch)\n"
        "order = torch.randperm(64, generator=g)[place * 32 : (place + 1) * 32]",
        "whole = torch.randperm(64, generator=same)\n"
        "order = torch.tensor([whole[i] for i in range(rank, 64, world)])",
        "whole = torch.randperm(64, generator=own)\n"
        "order = torch.tensor([whole[i] for i in range(0, 64, world)])",
        "whole = torch.randperm(64, generator=own)\n"
        "order = torch.stack([whole[at : at + world][0] for at in range(0, 64, world)])",
    ],
)
def test_other_orders(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)
