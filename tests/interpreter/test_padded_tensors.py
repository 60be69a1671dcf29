"""The length of a tensor that is padded to the longest of the rank's own rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_batches import undecided

LOADER = """
def collate(rows):
    xs, ys = zip(*rows)
    return {"x": nn.utils.rnn.pad_sequence(xs, batch_first=True), "y": torch.stack(ys)}

loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data), collate_fn=collate)
"""
PAIRS = """
from functools import partial

def collate(rows, value):
    xs, ys = zip(*rows)
    return nn.utils.rnn.pad_sequence(xs, True, value), torch.stack(ys)

loader = DataLoader(
    data, batch_size=2, sampler=DistributedSampler(data), collate_fn=partial(collate, value=0)
)
"""
LONG = """
for batch in loader:
    x = batch["x"]
    if {test}:
        continue
    model(x).mean().backward()
"""
LONG_PAIRS = """
for x, y in loader:
    x = x.cuda(non_blocking=True)
    if {test}:
        continue
    model(x).mean().backward()
"""


@pytest.mark.parametrize(
    "test",
    [
        'batch["x"].size(1) > 90',
        "x.shape[1] > 90",
        "x.size(dim=1) > 90",
        "x.to('cuda').size(1) * 2 > 90",
        "x.numel() > 4000",
    ],
)
def test_a_test_of_the_length(tmp_path: Path, test: str) -> None:
    assert undecided(tmp_path, LOADER + LONG.format(test=test)) == [test]


@pytest.mark.parametrize(
    "test", ["x.size(1) > 90", "x.shape[1] > 90", "x.long().size(1) > 90 and y is not None"]
)
def test_a_test_of_the_length_in_a_pair(tmp_path: Path, test: str) -> None:
    assert undecided(tmp_path, PAIRS + LONG_PAIRS.format(test=test)) == [test]


@pytest.mark.parametrize(
    "test",
    [
        'batch["x"].size(0) < 2',
        'batch["y"].size(1) > 90',
        "x.shape[2] > 90",
        "x.shape[-1] > 90",
        "x[:, :64].size(1) > 90",
        "x.sum(0).size(1) > 90",
        "x.dim() > 2",
        "len(x) < 2",
        "batch is None",
    ],
)
def test_a_test_of_another_size(tmp_path: Path, test: str) -> None:
    assert undecided(tmp_path, LOADER + LONG.format(test=test)) == []


@pytest.mark.parametrize(
    "collate",
    [
        LOADER.replace(", batch_first=True)", ")"),
        LOADER.replace("batch_first=True)", "batch_first=True)[:, :64]"),
        LOADER.replace("nn.utils.rnn.pad_sequence(xs, batch_first=True)", "torch.stack(xs)"),
        LOADER.replace(", sampler=DistributedSampler(data)", ""),
        LOADER.replace("import", "import")
        + "from tools import prepare\nloader = prepare(loader)\n",
    ],
)
def test_a_length_that_may_be_the_same(tmp_path: Path, collate: str) -> None:
    assert undecided(tmp_path, collate + LONG.format(test="x.size(1) > 90")) == []


def test_a_length_that_the_ranks_agree_on(tmp_path: Path) -> None:
    agreed = """
for batch in loader:
    x = batch["x"]
    longest = torch.tensor(x.size(1))
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    if longest > 90:
        continue
    model(x).mean().backward()
"""
    assert undecided(tmp_path, LOADER + agreed) == []
