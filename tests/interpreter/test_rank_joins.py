"""Values that the ranks choose by a test of the rank, and the local rank under other names."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Collective, GuardKind, Ranks, Saved
from fsdplint.trace.queries.rank_divergence import unmatched_collectives

HEAD = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Linear(4, 1)
fully_shard(model)
"""


@pytest.mark.parametrize(
    "choice",
    [
        'if rank == 0:\n    path = "a.pt"\nelse:\n    path = "b.pt"',
        'path = "a.pt"\nif rank == 0:\n    path = "b.pt"',
        'path = "a.pt" if rank == 0 else "b.pt"',
        'def choose():\n    if rank == 0:\n        return "a.pt"\n    return "b.pt"\npath = choose()',
    ],
)
def test_a_path_that_the_rank_chooses(tmp_path: Path, choice: str) -> None:
    body = f"{choice}\ntorch.save(model.state_dict(), path)\n"
    assert [e.per_rank for e in events(program(tmp_path, body, header=HEAD), Saved)] == [True]


def test_the_same_path_on_both_sides(tmp_path: Path) -> None:
    body = """\
        if rank == 0:
            path = "a.pt"
        else:
            path = "a.pt"
        torch.save(model.state_dict(), path)
        """
    assert [e.per_rank for e in events(program(tmp_path, body, header=HEAD), Saved)] == [False]


@pytest.mark.parametrize(
    ("test", "ranks"),
    [
        ("log is not None", Ranks.ONE),
        ("log", Ranks.ONE),
        ("log is None", Ranks.OTHERS),
        ("not log", Ranks.OTHERS),
    ],
)
@pytest.mark.parametrize(
    "choice",
    [
        'if rank == 0:\n    log = open("log")\nelse:\n    log = None',
        'log = None\nif rank == 0:\n    log = open("log")',
        'log = open("log") if rank == 0 else None',
    ],
)
def test_what_only_one_rank_has(tmp_path: Path, choice: str, test: str, ranks: Ranks) -> None:
    body = f"{choice}\nif {test}:\n    dist.barrier()\n"
    assert [e.ranks for e in events(program(tmp_path, body, header=HEAD), Collective)] == [ranks]


def test_a_name_is_not_changed_on_the_other_ranks(tmp_path: Path) -> None:
    body = """\
        name = "a"
        if rank == 0:
            name = "b"
        elif name == "b":
            dist.barrier()
        """
    assert not list(events(program(tmp_path, body, header=HEAD), Collective))


@pytest.mark.parametrize(
    "choice",
    [
        "path = [None]\nif rank == 0:\n    path = [input()]",
        "path = [input() if rank == 0 else None]",
        "one = input() if rank == 0 else None\npath = [one]",
    ],
)
def test_a_broadcast_makes_a_list_the_same(tmp_path: Path, choice: str) -> None:
    body = f"""{choice}
dist.broadcast_object_list(path)
if path[0] is not None:
    dist.barrier()
"""
    found = program(tmp_path, body, header=HEAD)
    assert not any(unmatched_collectives(trace) for trace in found.traces)


@pytest.mark.parametrize("name", ["rank", "r", "number"])
@pytest.mark.parametrize(
    "value", ['int(os.environ["LOCAL_RANK"])', 'int(os.getenv("LOCAL_RANK", 0))']
)
def test_the_local_rank_by_another_name(tmp_path: Path, name: str, value: str) -> None:
    body = f"""\
        def save({name}):
            if {name} == 0:
                get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))

        def main({name}):
            save({name})

        main({value})
        """
    found = program(tmp_path, textwrap.dedent(body), header=HEAD)
    assert any(unmatched_collectives(trace) for trace in found.traces)


def test_a_part_of_the_ranks_may_be_a_group(tmp_path: Path) -> None:
    body = """\
        local = int(os.environ["LOCAL_RANK"])
        if local % 2 == 0:
            dist.barrier()
        """
    found = program(tmp_path, body, header=HEAD)
    assert not any(unmatched_collectives(trace) for trace in found.traces)


def test_what_one_rank_has_chosen_is_known_there(tmp_path: Path) -> None:
    body = """\
        best = 9
        for step in range(9):
            if rank == 0:
                loss = input()
                if loss < best:
                    best = loss
                    dist.barrier()
        """
    found = program(tmp_path, body, header=HEAD)
    for event in events(found, Collective):
        assert [guard.kind for guard in event.guards].count(GuardKind.RANK) == 1
