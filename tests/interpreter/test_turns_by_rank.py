"""Loops that only some of the ranks run, or run more often, because the rank chose what they visit."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Called, Collective, Ranks
from fsdplint.trace.queries.rank_divergence import unmatched_collectives

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Linear(4, 1)
fully_shard(model)
data = torch.randn(8, 4)
loader = DataLoader(data, sampler=DistributedSampler(data))
"""


def forwards(tmp_path: Path, body: str) -> list[Ranks]:
    """The ranks of each forward of a program."""
    return [event.ranks for event in events(program(tmp_path, body, header=HEAD), Called)]


@pytest.mark.parametrize(
    "choice",
    [
        "used = loader if rank == 0 else []",
        "used = [] if rank else loader",
        "used = loader\nif rank != 0:\n    used = ()",
        "used = None\nif rank == 0:\n    used = loader\nused = used or []",
        "def choose():\n    return loader if dist.get_rank() == 0 else []\nused = choose()",
        "used = range(4 if rank == 0 else 0)",
        "turns = 0\nif rank == 0:\n    turns = 4\nused = range(turns)",
        "used = [data, data] if rank == 0 else []",
    ],
)
@pytest.mark.parametrize("over", ["used", "enumerate(used)"])
def test_a_loop_of_one_rank(tmp_path: Path, choice: str, over: str) -> None:
    found = forwards(tmp_path, f"{choice}\nfor batch in {over}:\n    model(data)\n")
    assert found
    assert set(found) == {Ranks.ONE}


@pytest.mark.parametrize(
    "choice",
    [
        "used = range(4 if rank == 0 else 2)",
        "turns = 2\nif rank == 0:\n    turns = 4\nused = range(turns)",
        "used = [data, data, data] if rank == 0 else [data, data]",
    ],
)
def test_further_turns_of_one_rank(tmp_path: Path, choice: str) -> None:
    found = forwards(tmp_path, f"{choice}\nfor batch in used:\n    model(data)\n")
    assert found[0] is Ranks.ALL
    assert found[-1] is Ranks.ONE


@pytest.mark.parametrize(
    "choice",
    [
        "used = [data, data] if rank == 0 else [data[:1], data[:1]]",
        "used = range(4) if rank == 0 else range(4)",
        "used = loader if rank == 0 else DataLoader(data)",
        "used = enumerate(loader) if rank == 0 else loader",
        "used = [input()] if rank == 0 else []\ndist.broadcast_object_list(used)",
    ],
)
def test_a_loop_of_all_ranks(tmp_path: Path, choice: str) -> None:
    found = forwards(tmp_path, f"{choice}\nfor batch in used:\n    model(data)\n")
    assert set(found) == {Ranks.ALL}


@pytest.mark.parametrize(
    ("test", "ranks"),
    [
        ("used is not None", Ranks.ONE),
        ("used is None", Ranks.OTHERS),
        ("used", Ranks.ONE),
        ("not used", Ranks.OTHERS),
    ],
)
@pytest.mark.parametrize(
    "choice",
    [
        "used = loader if rank == 0 else None",
        "used = None\nif rank == 0:\n    used = DataLoader(data)",
        "used = DataLoader(data) if dist.get_rank() == 0 else None",
    ],
)
def test_a_loader_that_one_rank_has(tmp_path: Path, choice: str, test: str, ranks: Ranks) -> None:
    body = f"{choice}\nif {test}:\n    dist.barrier()\n"
    assert [e.ranks for e in events(program(tmp_path, body, header=HEAD), Collective)] == [ranks]


def test_a_loader_of_all_ranks_is_not_marked(tmp_path: Path) -> None:
    body = """\
        used = loader if rank == 0 else None
        for batch in loader:
            model(batch)
        if loader is not None:
            dist.barrier()
        """
    assert not any(
        unmatched_collectives(trace) for trace in program(tmp_path, body, header=HEAD).traces
    )


def test_the_loop_over_the_loader_of_one_rank_ends(tmp_path: Path) -> None:
    body = """\
        used = loader if rank == 0 else []
        for batch in used:
            model(batch)
        dist.barrier()
        """
    found = events(program(tmp_path, body, header=HEAD), Collective)
    assert [event.ranks for event in found] == [Ranks.ALL]


@pytest.mark.parametrize(
    "choice",
    [
        "begin = 0\nif rank == 0:\n    begin = 1\nused = range(begin, 3)",
        "begin = 0\nif rank == 0:\n    begin = torch.load('state')['epoch']\nused = range(begin, 3)",
        "import json\nbegin = 0\nif rank == 0:\n    begin = json.load(open('state'))['step'] + 1\n"
        "used = range(begin, 3)",
        "def resumed():\n    if rank != 0:\n        return 0\n    return torch.load('state')['step']\n"
        "begin = resumed()\nused = range(begin, 3)",
    ],
)
def test_a_later_begin_of_one_rank(tmp_path: Path, choice: str) -> None:
    found = forwards(tmp_path, f"{choice}\nfor batch in used:\n    model(data)\n")
    assert found[0] is Ranks.ALL
    assert found[-1] is Ranks.OTHERS


@pytest.mark.parametrize(
    "choice",
    [
        "begin = 0\nif rank == 0:\n    begin = torch.load('state')['epoch']\n"
        "sent = [begin]\ndist.broadcast_object_list(sent, src=0)\nused = range(sent[0], 3)",
        "begin = torch.zeros((), dtype=torch.long)\nif rank == 0:\n    begin.fill_(2)\n"
        "dist.broadcast(begin, src=0)\nused = range(begin.item(), 3)",
        "begin = 1 if rank == 0 else 1\nused = range(begin, 3)",
        "begin = torch.load('state')['epoch']\nused = range(begin, 3)",
        "begin = rank\nused = range(begin, 8, dist.get_world_size())",
        "begin = 0\nif rank == 0:\n    begin = torch.load('state')['epoch']\n"
        "used = range(begin, begin + 3)",
        "begin, end = (0, 4) if rank == 0 else (4, 8)\nused = range(begin, end)",
    ],
)
def test_a_begin_of_all_ranks(tmp_path: Path, choice: str) -> None:
    found = forwards(tmp_path, f"{choice}\nfor batch in used:\n    model(data)\n")
    assert set(found) == {Ranks.ALL}


READ_ON_ONE_RANK = "step = 0\nif rank == 0:\n    step = torch.load('state')['step']\n"
COUNTED = "while step < 8:\n    model(data)\n    step += 1\n"


@pytest.mark.parametrize(
    "code",
    [
        READ_ON_ONE_RANK + COUNTED,
        READ_ON_ONE_RANK.replace("0:", "0 and True:") + COUNTED,
        READ_ON_ONE_RANK + COUNTED.replace("step < 8", "step != 8"),
        READ_ON_ONE_RANK + COUNTED.replace("step < 8", "int(input()) > step"),
        "step = 3 if rank == 0 else 1\n" + COUNTED,
    ],
)
def test_a_number_of_one_rank_that_is_counted_up(tmp_path: Path, code: str) -> None:
    found = forwards(tmp_path, code)
    assert found[0] is Ranks.ALL
    assert found[-1] is Ranks.OTHERS


@pytest.mark.parametrize(
    "code",
    [
        READ_ON_ONE_RANK
        + "sent = [step]\ndist.broadcast_object_list(sent)\nstep = sent[0]\n"
        + COUNTED,
        READ_ON_ONE_RANK + "end = step + 8\n" + COUNTED.replace("8", "end"),
        READ_ON_ONE_RANK + "step = 0\n" + COUNTED,
        READ_ON_ONE_RANK + COUNTED.replace("step += 1", "step = 9"),
        READ_ON_ONE_RANK.replace("if rank == 0", "if True") + COUNTED,
        "step = rank\n" + COUNTED.replace("+= 1", "+= dist.get_world_size()"),
    ],
)
def test_a_number_of_all_ranks_that_is_counted_up(tmp_path: Path, code: str) -> None:
    found = program(tmp_path, code, header=HEAD)
    assert not any(unmatched_collectives(trace) for trace in found.traces)
