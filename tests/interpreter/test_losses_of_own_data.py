"""FSDP501 where a loss of each rank's own data decides whether the backward runs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import findings, program

HEAD = """\
import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

dist.init_process_group("gloo")
rank = dist.get_rank()

class Tones(IterableDataset):
    def __init__(self, seed, size):
        self.seed, self.size = seed, size

    def __iter__(self):
        generator = {generator}
        for _ in range(self.size):
            yield draw(generator)

class Many(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList({norm}(nn.Linear(8, 8)) for _ in range(2))

    def forward(self, x):
        found = []
        for part in self.parts:
            found.append(part(x))
        return found

model = fully_shard(Many())
optimizer = torch.optim.AdamW(model.parameters())
"""
TURN = """
outputs = model(batch)
{loss}
if loss.item() > 0.1:
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SPLIT = "DataLoader(data, 4, sampler=DistributedSampler(data))"
SEEDED = "torch.Generator().manual_seed(self.seed)"
FIRST = "loss = outputs[0].mean()"


def check(
    folder: Path,
    loader: str,
    loss: str,
    found: bool,
    *,
    norm: str = "nn.Sequential",
    generator: str = SEEDED,
) -> None:
    text = f"for batch in {loader}:\n" + textwrap.indent(TURN.format(loss=loss), "    ")
    header = HEAD.replace("{generator}", generator).replace("{norm}", norm)
    codes = {one.rule.code for one in findings(program(folder, text, header=header), "FSDP501")}
    assert codes == ({"FSDP501"} if found else set())


@pytest.mark.parametrize(
    ("seed", "generator", "found"),
    [
        ("7 + rank", SEEDED, True),
        ("7 + rank", "numpy.random.default_rng(self.seed)", True),
        ("args.seed + 100 * epoch + rank", SEEDED, True),
        ("7", SEEDED, False),
        ("7 + rank // 8", SEEDED, False),
        ("7 + rank", "note(self.seed)", False),
    ],
)
def test_a_dataset_that_seeds_its_numbers(
    tmp_path: Path, seed: str, generator: str, found: bool
) -> None:
    check(tmp_path, f"DataLoader(Tones({seed}, 64), 4)", FIRST, found, generator=generator)


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm", "torch.nn.utils.weight_norm"])
def test_a_module_with_a_computed_weight(tmp_path: Path, norm: str) -> None:
    check(tmp_path, SPLIT, FIRST, True, norm=norm)


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        ("loss = sum(one.mean() for one in outputs)", True),
        ("loss = torch.stack([one.mean() for one in outputs]).sum()", True),
        ("loss = sum((a - b).mean() for a, b in zip(outputs, outputs))", True),
        ("loss = sum(a.mean() for (a, _) in zip(outputs, targets))", True),
        ("loss = sum(b.mean() for (_, b) in zip(outputs, targets))", False),
        ("loss = sum(one.mean() for one in outputs)\n    dist.all_reduce(loss)", False),
    ],
)
def test_elements_of_an_output(tmp_path: Path, loss: str, found: bool) -> None:
    check(tmp_path, SPLIT, loss.replace("\n    ", "\n"), found)
