"""FSDP512 for samplers of the program, whose shuffle has a seed with an attribute in it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import findings, program

HEAD = """
import random
from random import Random as Numbers
import numpy as np
from itertools import islice
from torch.utils.data import DataLoader, Sampler, TensorDataset

class Shuffled(Sampler):
    def __init__(self, size, seed=3, shuffle=True):
        self.size, self.seed, self.shuffle = size, seed, shuffle
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.epoch = 0

{methods}
    def __len__(self):
        return self.size // self.world

dist.init_process_group("gloo")
model = fully_shard(Net())
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(64, 8))
sampler = Shuffled(64)
loader = DataLoader(data, batch_size=2, sampler=sampler)

def train(loader):
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
SET = """
    def set_epoch(self, epoch):
        self.epoch = epoch
"""
ITER = """
    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed + self.epoch)
        order = list(range(self.size))
        if self.shuffle:
            order = torch.randperm(self.size, generator=g).tolist()
        return iter(order[self.rank :: self.world])
"""
OTHER = {
    "numpy": """
    def __iter__(self):
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.size)
        yield from order[self.rank :: self.world].tolist()
""",
    "random": """
    def __iter__(self):
        order = list(range(self.size))
        random.Random(self.seed * 1000 + self.epoch).shuffle(order)
        return iter(order[self.rank :: self.world])
""",
    "local": """
    def _order(self):
        seed = self.seed + self.epoch
        g = torch.Generator().manual_seed(seed)
        return torch.randperm(self.size, generator=g).tolist()

    def __iter__(self):
        yield from self._order()[self.rank :: self.world]
""",
    "other names": """
    def __iter__(self):
        make, draw = torch.Generator, torch.randperm
        begin = make().manual_seed
        g = begin(self.seed + self.epoch)
        yield from draw(self.size, generator=g).tolist()[self.rank :: self.world]
""",
    "an imported name": """
    def __iter__(self):
        order = list(range(self.size))
        Numbers(self.seed * 1000 + self.epoch).shuffle(order)
        return iter(order[self.rank :: self.world])
""",
}
EPOCHS = "for epoch in range(4):\n    train(loader)\n"


def _found(folder: Path, methods: str, body: str) -> list[str]:
    found = program(folder, HEAD.format(methods=textwrap.indent(methods, "")) + body)
    return [one.message for one in findings(found, "FSDP512")]


@pytest.mark.parametrize("form", ["plain", *OTHER])
def test_an_epoch_that_nothing_sets(tmp_path: Path, form: str) -> None:
    assert len(_found(tmp_path, SET + OTHER.get(form, ITER), EPOCHS)) == 1


@pytest.mark.parametrize(
    "body",
    [
        "loader = DataLoader(data, batch_sampler=sampler)\n" + EPOCHS,
        "for epoch in range(4):\n    batches = iter(loader)\n"
        "    while window := list(islice(batches, 2)):\n"
        "        sum(model(x).mean() for (x,) in window).backward()\n        optimizer.step()\n",
        "for epoch in range(4):\n    sampler.set_epoch(0)\n    train(loader)\n",
        "other = Shuffled(64)\nfor epoch in range(4):\n    other.set_epoch(epoch)\n    train(loader)\n",
        "class Trainer:\n    def __init__(self, loader):\n        self.loader, self.epoch = loader, 0\n"
        "    def fit(self):\n        while self.epoch < 4:\n            train(self.loader)\n"
        "            self.epoch += 1\nTrainer(loader).fit()\n",
    ],
)
def test_passes_in_other_forms(tmp_path: Path, body: str) -> None:
    assert len(_found(tmp_path, SET + ITER, body)) == 1


@pytest.mark.parametrize(
    "body",
    [
        "for epoch in range(4):\n    sampler.set_epoch(epoch)\n    train(loader)\n",
        "for epoch in range(4):\n    loader.sampler.set_epoch(epoch)\n    train(loader)\n",
        "for epoch in range(4):\n    sampler.epoch = epoch\n    train(loader)\n",
        "for epoch in range(4):\n    train(loader)\n    sampler.set_epoch(epoch + 1)\n",
        "for epoch in range(4):\n    if hasattr(loader.sampler, 'set_epoch'):\n"
        "        loader.sampler.set_epoch(epoch)\n    train(loader)\n",
        "for epoch in range(4):\n    getattr(loader.sampler, 'set_epoch')(epoch)\n    train(loader)\n",
        "from tools import Callbacks\ncallbacks = Callbacks(sampler)\n" + EPOCHS,
        "from tools import prepare\nloader = prepare(loader)\n" + EPOCHS,
        "from tools import prepare\nprepare(loader)\n" + EPOCHS,
        "train(loader)\n",
        "sampler = Shuffled(64, shuffle=False)\nloader = DataLoader(data, sampler=sampler)\n"
        + EPOCHS,
        "for epoch in range(4):\n    sampler = Shuffled(64, seed=epoch)\n"
        "    train(DataLoader(data, sampler=sampler))\n",
        "for epoch in range(4):\n    for (x,) in loader:\n        model(x)\n",
        "class Hook:\n    def begin(self, holder, epoch):\n        holder.set_epoch(epoch)\n"
        "from tools import Runner\nrunner = Runner([Hook()])\n"
        "for epoch in range(4):\n    runner.begin(epoch)\n    train(loader)\n",
    ],
)
def test_an_epoch_that_something_sets(tmp_path: Path, body: str) -> None:
    assert _found(tmp_path, SET + ITER, body) == []


@pytest.mark.parametrize(
    "methods",
    [
        ITER.replace("        return iter", "        self.epoch += 1\n        return iter") + SET,
        ITER.replace(" + self.epoch", "") + SET,
        ITER,  # nothing could set it
        SET + ITER.replace("torch.randperm(self.size, generator=g).tolist()", "order[::-1]"),
        SET + ITER.replace("self.seed + self.epoch", "self.seed + self.epoch + unknown()"),
    ],
)
def test_orders_of_another_kind(tmp_path: Path, methods: str) -> None:
    body = "from tools import unknown\n" + EPOCHS
    assert _found(tmp_path, methods, body) == []
