"""Records of several ranks as one trace: who took part in what."""

from __future__ import annotations

from typing import Any

from two_ranks import TwoRanks

from fsdplint.runtime.launch.merge import largest_owned_modules, merge
from fsdplint.runtime.launch.records import RankRecord
from fsdplint.trace import Collective, OptimizerBuilt, Ranks, Saved, StateTaken

Step = tuple[str, int] | tuple[str, int, str]


def record(rank: int, *steps: Step, end: str | None = "ok", world: int = 2) -> RankRecord:
    """A record of collectives at these lines of one function."""
    events: list[dict[str, Any]] = [
        {
            "t": "event",
            "n": number,
            "kind": "collective",
            "at": ["train.py", step[1], 1, step[1], 9],
            "stack": [],
            "functions": [1],
            "api": step[0],
            "collective": True,
        }
        for number, step in enumerate(steps, 1)
    ]
    ending = {"status": end} if end is not None else None
    return RankRecord(rank=rank, world=world, head={}, events=events, end=ending)


def ranks_of(*records: RankRecord) -> dict[tuple[str, int], Ranks]:
    return {
        (event.api, event.site.location().line): event.ranks
        for event in merge(records).of(Collective)
    }


def test_what_all_ranks_do_is_one_event() -> None:
    trace = merge([record(0, ("a", 1), ("b", 2)), record(1, ("a", 1), ("b", 2))])
    assert [event.ranks for event in trace] == [Ranks.ALL, Ranks.ALL]
    assert [event.index for event in trace] == [0, 1]


def test_what_one_rank_skips_is_partial() -> None:
    found = ranks_of(record(0, ("a", 1), ("b", 2), ("c", 3)), record(1, ("a", 1), ("c", 3)))
    assert found == {("a", 1): Ranks.ALL, ("b", 2): Ranks.ONE, ("c", 3): Ranks.ALL}


def test_what_only_the_others_do() -> None:
    records = [record(0, ("a", 1)), *(record(r, ("a", 1), ("b", 2), world=3) for r in (1, 2))]
    assert ranks_of(*records)["b", 2] is Ranks.OTHERS


def test_some_ranks_of_many() -> None:
    records = [record(r, *([("b", 2)] if r in (1, 3) else []), world=5) for r in range(5)]
    assert ranks_of(*records)["b", 2] is Ranks.SOME


def test_a_rank_that_crashed_before_it_makes_nothing_partial() -> None:
    found = ranks_of(
        record(0, ("a", 1), ("b", 2), ("c", 3), end="raised"),
        record(1, ("a", 1), end="raised"),
    )
    assert set(found.values()) == {Ranks.ALL}


def test_a_finally_is_reached_from_anywhere() -> None:
    """Rank 1 raised ahead of line 2 and then ran the `finally` at line 9."""
    one = record(0, ("a", 1), ("b", 2), ("destroy", 9), end="raised")
    other = record(1, ("a", 1), ("destroy", 9), end="raised")
    other.events[-1]["handling"] = True
    assert set(ranks_of(one, other).values()) == {Ranks.ALL}
    del other.events[-1]["handling"]
    assert ranks_of(one, other)["b", 2] is Ranks.ONE


def test_a_hang_behind_a_guard() -> None:
    """Rank 0 waits in the guarded call at line 2; rank 1 waits in the barrier behind it."""
    found = ranks_of(
        record(0, ("a", 1), ("guarded", 2), end=None),
        record(1, ("a", 1), ("barrier", 3), end=None),
    )
    assert found["guarded", 2] is Ranks.ONE
    assert found["barrier", 3] is Ranks.ALL


def test_a_hang_behind_a_guard_at_the_end_of_a_loop() -> None:
    """Rank 1 went on to the next turn, whose first line is above the guarded one."""
    turn = [("forward", 10), ("step", 12)]
    found = ranks_of(
        record(0, *turn, ("guarded", 14), end=None), record(1, *turn, ("forward", 10), end=None)
    )
    assert found["guarded", 14] is Ranks.ONE
    assert found["forward", 10] is Ranks.ALL


def test_events_of_a_loop_and_a_guard_within_it() -> None:
    once = [("forward", 10), ("step", 12)]
    trace = merge(
        [
            record(0, *once, ("log", 13), *once, ("log", 13)),
            record(1, *once, *once),
        ]
    )
    found = {(event.api, event.ranks, event.in_loop) for event in trace.of(Collective)}
    assert found == {
        ("forward", Ranks.ALL, True),
        ("step", Ranks.ALL, True),
        ("log", Ranks.ONE, True),
    }
    assert [event.api for event in trace.of(Collective)] == ["forward", "step", "log"] * 2


def test_paths_are_put_where_the_user_has_them() -> None:
    one = record(0, ("a", 1), world=1)
    one.events[0]["at"][0] = "/tmp/copy/pkg/train.py"
    trace = merge([one], {"/tmp/copy": "/home/me/project"})
    assert trace.events[0].site.path == "/home/me/project/pkg/train.py"


def test_the_largest_modules_that_are_owned() -> None:
    def module(own: int = 0, children: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
        line = {"own": own, "flat": False, "wrapper": "", "inner": None}
        return {**line, "children": {name: name for name in children}, **more}

    tree = {
        "net": module(children=("body", "head", "relu")),
        "body": module(children=("a", "b")),
        "a": module(own=2),
        "b": module(own=2),
        "head": module(own=1),
        "relu": module(),
    }
    assert largest_owned_modules(tree, ["a", "b", "head"], set()) == ["net"]
    assert largest_owned_modules(tree, ["a", "b"], set()) == ["body"]
    assert largest_owned_modules(tree, ["b"], set()) == ["b"]
    flat = {
        "fsdp": module(wrapper="fsdp1", inner="net"),
        "net": module(own=0, flat=True, children=("unit", "head")),
        "head": module(own=1),
        "unit": module(wrapper="fsdp1", inner="block"),
        "block": module(flat=True, children=("w",)),
        "w": module(own=1),
    }
    assert largest_owned_modules(flat, ["net", "block"], set()) == ["fsdp"]
    assert largest_owned_modules(flat, ["block"], set()) == ["unit"]
    assert largest_owned_modules(flat, ["net", "block"], {"fsdp"}) == ["net"]


GUARDED = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = fully_shard(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
options = StateDictOptions(full_state_dict=True)
if dist.get_rank() == 0:
    state = get_model_state_dict(model, options=options)
    torch.save(state, "model.pt")
dist.barrier()
"""


def test_a_collective_under_a_rank_guard(two_ranks: TwoRanks) -> None:
    outcome = two_ranks.run(GUARDED)
    assert outcome.status != "ok" and outcome.stuck, str(outcome)
    (taken,) = outcome.trace.of(StateTaken)
    assert taken.ranks is Ranks.ONE and taken.collective
    assert taken.site.location().line == 15
    (barrier,) = outcome.trace.of(Collective)
    assert barrier.ranks is Ranks.ALL
    (optimizer,) = outcome.trace.of(OptimizerBuilt)
    assert optimizer.ranks is Ranks.ALL


def test_writing_on_one_rank(two_ranks: TwoRanks) -> None:
    program = GUARDED.replace(
        "if dist.get_rank() == 0:\n    state = get_model_state_dict(model, options=options)\n",
        "state = get_model_state_dict(model, options=options)\nif dist.get_rank() == 0:\n",
    )
    outcome = two_ranks.run(program)
    assert outcome.status == "ok", str(outcome)
    assert [event.ranks for event in outcome.trace.of(StateTaken, Saved)] == [Ranks.ALL, Ranks.ONE]
