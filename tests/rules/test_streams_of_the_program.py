"""FSDP511 and FSDP522: what the code of a stream of the program may give ranks and workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import random
import torch
import torch.distributed as dist
from elsewhere import read
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset

class Samples:
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return self

    def __next__(self):
        {turn}

class Stream(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        {begin}

    def __next__(self):
        {turn}

dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Stream(16), batch_size=4, num_workers=2):
    model(batch).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FIXED = "return torch.ones(4) * self.size"
BEGINS = ("return self", "return Samples(self.size)", "return iter(Samples(self.size))")


def found(tmp_path: Path, begin: str, turn: str) -> set[str]:
    return found_in(tmp_path, PROGRAM.format(begin=begin, turn=turn))


def found_in(tmp_path: Path, text: str) -> set[str]:
    path = tmp_path / "train.py"
    path.write_text(text)
    rules = [rule_by_code(code)() for code in ("FSDP511", "FSDP522")]
    return {finding.rule.code for finding in check(load([path]), rules)}


@pytest.mark.parametrize("begin", BEGINS)
def test_ranks_and_workers_get_the_same(begin: str, tmp_path: Path) -> None:
    assert found(tmp_path, begin, FIXED) == {"FSDP511", "FSDP522"}


@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize(
    "turn",
    [
        "return read(self.size)",
        "return torch.full((4,), random.random())",
        "return torch.ones(4) * dist.get_rank() + torch.randn(4)",
    ],
)
def test_ranks_or_workers_may_get_others(begin: str, turn: str, tmp_path: Path) -> None:
    assert found(tmp_path, begin, turn) == set()


READERS = {
    "code out of sight": ("read()", "return self.size.next()"),
    "a queue": ("torch.multiprocessing.Queue()", "return self.size.get()"),
    "a loop over an object out of sight": ("read()", "for row in self.size: return row"),
    "the seed of the worker": (
        "16",
        "return torch.ones(4, generator=torch.Generator().manual_seed(torch.initial_seed()))",
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_workers_may_get_other_rows_of_a_reader(reader: str, tmp_path: Path) -> None:
    made, turn = READERS[reader]
    text = PROGRAM.format(begin="return self", turn=turn).replace("Stream(16)", f"Stream({made})")
    assert "FSDP522" not in found_in(tmp_path, text)


def test_all_workers_read_the_same_file(tmp_path: Path) -> None:
    turn = "for row in open(self.size): return torch.tensor([float(x) for x in row.split(',')])"
    assert "FSDP522" in found(tmp_path, "return self", turn)


WORKER = "from torch.utils.data import get_worker_info as ask\nimport torch.utils.data as data\n"
ASKS = {
    "by another name": "w = ask()\n        return torch.ones(4) * (w.id if w else 0)",
    "by its module": "w = data.get_worker_info()\n        return torch.ones(4) * w.id",
    "by getattr": "w = getattr(data, 'get_' + 'worker_info')()\n        return torch.ones(4) * w.id",
    "in a function": "return torch.ones(4) * part()",
    "the number of the process": "return torch.ones(4) * (os.getpid() % 2)",
}


@pytest.mark.parametrize("form", ASKS)
def test_a_stream_asks_for_the_worker(form: str, tmp_path: Path) -> None:
    helper = "import os\n\ndef part():\n    w = ask()\n    return w.id if w is not None else 0\n"
    path = tmp_path / "train.py"
    path.write_text(WORKER + helper + PROGRAM.format(begin="return self", turn=ASKS[form]))
    assert list(check(load([path]), [rule_by_code("FSDP522")()])) == []


def test_the_word_worker_asks_for_none(tmp_path: Path) -> None:
    turn = "worker = 2  # num_workers, get_worker_info()\n        return torch.ones(4) * worker"
    assert "FSDP522" in found(tmp_path, "return self", turn)
