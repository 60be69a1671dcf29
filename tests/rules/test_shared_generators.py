"""FSDP511 on data that generators with one seed for all ranks draw and shuffle."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import json
import time
import torch
import torch.distributed as dist
from pathlib import Path
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

settings = json.loads(Path("settings.json").read_text())
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(settings["seed"])
model = fully_shard(nn.Linear(4, 4))


def samples(seed=0, count=64):
    drawn = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (count,), generator=drawn)
    centers = torch.randn(4, 4, generator=torch.Generator().manual_seed(3)) * 0.5
    return centers[y] + torch.randn(count, 4, generator=drawn), y


{lines}
torch.manual_seed(settings["seed"] + 1 + rank)
for x, y in loader:
    nn.functional.cross_entropy(model(x), y).backward()
"""


def found_in(folder: Path, lines: str) -> int:
    file = folder / "main.py"
    file.write_text(PROGRAM.format(lines=lines))
    rule = rule_by_code("FSDP511")
    assert rule is not None
    return len(check(load([file]), [rule()]))


SHUFFLED = "loader = DataLoader(TensorDataset(*samples()), 4, shuffle=True, generator={generator})"


@pytest.mark.parametrize(
    "generator",
    [
        "torch.Generator().manual_seed(7)",
        'torch.Generator().manual_seed(settings["seed"])',
        'torch.Generator().manual_seed(settings["seed"] * 10 + 1)',
    ],
)
def test_a_loader_that_shuffles_alike(tmp_path: Path, generator: str) -> None:
    assert found_in(tmp_path, SHUFFLED.format(generator=generator)) == 1


@pytest.mark.parametrize(
    "lines",
    [
        SHUFFLED.format(generator="torch.Generator().manual_seed(7 + rank)"),
        SHUFFLED.format(generator="torch.Generator()"),
        SHUFFLED.format(generator="torch.Generator().manual_seed(int(time.time()))"),
        SHUFFLED.format(generator="None"),
        SHUFFLED.format(generator="torch.Generator().manual_seed(7)").replace(
            "samples()", "samples(rank)"
        ),
        SHUFFLED.format(generator="torch.Generator().manual_seed(7)").replace(
            "samples()", "samples(seed=dist.get_rank() * 2)"
        ),
        "x = torch.arange(64).view(16, 4) + torch.randn(16, 4)\n"
        "loader = DataLoader(TensorDataset(x), 4)",
    ],
)
def test_loaders_that_may_differ(tmp_path: Path, lines: str) -> None:
    assert found_in(tmp_path, lines) == 0


def test_a_loader_in_the_order_of_its_samples(tmp_path: Path) -> None:
    assert found_in(tmp_path, "loader = DataLoader(TensorDataset(*samples()), 4)") == 1
