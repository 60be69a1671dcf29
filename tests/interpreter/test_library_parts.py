"""Data that a library splits among the ranks, whose numbers it gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_batches import undecided

RANKS = "rank, ranks = dist.get_rank(), dist.get_world_size()\n"
LOOP = "for batch in {}:\n    if batch.sum() > 3:\n        dist.barrier()\n"
LOADERS = [
    "zoo.make_loader('x', rank=rank, world_size=ranks)",
    "zoo.Loader('x', ranks, rank)",
    "zoo.open('x').seq(skip=rank, step_by=ranks)",
    "zoo.open('x').seq(skip=rank, step_by=ranks).shuffle(seed=3).batch(4)",
    "torch.utils.data.DataLoader(zoo.Data('x', rank=rank, world_size=ranks))",
    "enumerate(zoo.Loader('x', ranks, rank))",
]


@pytest.mark.parametrize("loader", LOADERS)
def test_elements_of_what_a_library_splits(tmp_path: Path, loader: str) -> None:
    loop = LOOP.replace("for batch", "for _, batch") if loader.startswith("enum") else LOOP
    body = f"import zoo\n{RANKS}loader = {loader}\n{loop.format('loader')}"
    assert undecided(tmp_path, body) == ["batch.sum() > 3"]


@pytest.mark.parametrize(
    "loader",
    [
        "zoo.make_loader('x', rank=rank)",
        "zoo.make_loader('x', world_size=ranks)",
        "zoo.make_loader('x', rank=int(os.environ['LOCAL_RANK']), world_size=ranks)",
        "zoo.make_loader('x', seed=rank + ranks)",
        "zoo.make_loader('x')",
    ],
)
def test_elements_that_may_be_the_same(tmp_path: Path, loader: str) -> None:
    body = f"import os\nimport zoo\n{RANKS}loader = {loader}\n{LOOP.format('loader')}"
    assert undecided(tmp_path, body) == []


@pytest.mark.parametrize("test", ["saver.is_due", "saver.has_file()", "saver", "len(saver) > 3"])
def test_an_object_that_knows_the_ranks(tmp_path: Path, test: str) -> None:
    body = f"import zoo\n{RANKS}saver = zoo.Saver(rank, ranks)\nif {test}:\n    dist.barrier()\n"
    assert undecided(tmp_path, body) == []


@pytest.mark.parametrize("test", ["part", "part.is_due", "part.kind == 'data'", "part is not None"])
def test_elements_that_may_be_no_data(tmp_path: Path, test: str) -> None:
    loop = f"for part in zoo.parts(rank, ranks):\n    if {test}:\n        dist.barrier()\n"
    assert undecided(tmp_path, f"import zoo\n{RANKS}{loop}") == []
