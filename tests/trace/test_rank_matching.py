"""Collectives that one side of a rank test reaches, on traces made by hand."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.trace import (
    Called,
    Collective,
    FixedSite,
    Guard,
    GuardKind,
    Location,
    Module,
    Ranks,
    Sharded,
    Trace,
)
from fsdplint.trace.queries.rank_matching import unmatched_events

SIDES = {
    "0": Ranks.ONE,
    "other": Ranks.OTHERS,
    "some": Ranks.SOME,
    "node": Ranks.SOME,  # one rank of each machine
    "all": Ranks.ALL,
}


def trace(*steps: str) -> Trace:
    """A trace of collectives, each given as "side: api" or "side(test): api"."""
    result = Trace(producer="static")
    for line, step in enumerate(steps, 1):
        side, api = step.split(": ")
        side, _, text = side.rstrip(")").partition("(")
        ranks = SIDES[side]
        guards = ()
        if ranks.partial:
            holds, text = ranks is Ranks.ONE, text or "rank == 0"
            guard = Guard(GuardKind.RANK, text, holds, None, ranks, each_node=side == "node")
            guards = (guard,)
        result.add(
            Collective(
                site=FixedSite(Location("train.py", line)),
                ranks=ranks,
                guards=guards,
                collective=True,
                api=api,
            )
        )
    return result


def lines(found: Trace) -> list[int]:
    return [event.site.location().line for event in unmatched_events(found)]


def test_both_branches() -> None:
    assert lines(trace("0: barrier", "other: barrier")) == []
    assert lines(trace("0: gather", "0: barrier", "other: barrier")) == [1]
    assert lines(trace("0: barrier", "0: gather", "other: gather", "other: barrier")) in (
        [1, 4],
        [2, 3],
    )


def test_rank_0_first() -> None:
    assert lines(trace("other: barrier", "0: barrier")) == []
    # The work between the two barriers must not have collectives of all ranks itself.
    assert lines(trace("other: barrier", "all: all_reduce", "0: barrier")) == [1, 3]


def test_all_ranks() -> None:
    assert lines(trace("all: barrier", "all: all_reduce")) == []


def test_one_side_only() -> None:
    assert lines(trace("all: barrier", "0: full_tensor", "all: barrier")) == [2]
    assert lines(trace("other: broadcast")) == [1]


def test_tests_of_several_ranks_may_be_counterparts() -> None:
    assert lines(trace("0(rank == 0): broadcast", "0(rank == 1): broadcast")) == []
    assert lines(trace("0: broadcast", "some: broadcast")) == []
    assert lines(trace("some: broadcast")) == []


def test_a_rank_that_tells_the_others_what_to_run() -> None:
    both = trace("0: broadcast", "0: state_dict", "other: broadcast")
    assert lines(both) == [2]
    further = Guard(GuardKind.VARYING, "done", False)
    both.events[1].guards = (*both.events[1].guards, further)
    assert lines(both) == []
    barriers = trace("0: barrier", "0: state_dict", "other: barrier")
    barriers.events[1].guards = (*barriers.events[1].guards, further)
    assert lines(barriers) == [2]


def test_one_rank_of_each_machine() -> None:
    assert lines(trace("node(rank == 0): state_dict")) == [1]
    assert lines(trace("node(rank == 0): barrier", "node(rank != 0): barrier")) == []
    assert lines(trace("some(rank % 2 == 0): barrier")) == []


def test_a_rank_that_tells_the_other_ranks_of_its_machine_what_to_run() -> None:
    sides = "node(rank == 0): broadcast", "node(rank != 0): broadcast"
    both = trace(*sides, "node(rank != 0): broadcast_object_list")
    assert lines(both) == [3]
    further = Guard(GuardKind.VARYING, "command == 1", True)
    both.events[2].guards = (*both.events[2].guards, further)
    assert lines(both) == []


def test_a_forward_inside_a_forward_is_one_collective() -> None:
    result = Trace(producer="static")
    result.modules = {
        "net": Module("net", "Net", children={"block": "block"}),
        "block": Module("block", "Block"),
    }
    site = FixedSite(Location("train.py", 1))
    result.add(Called(site=site, module="net", ranks=Ranks.ONE, collective=True))
    result.add(Called(site=site, module="block", ranks=Ranks.ONE, collective=True, inside=0))
    assert [event.index for event in unmatched_events(result)] == [0]


def test_a_model_that_only_these_ranks_shard() -> None:
    result = Trace(producer="static")
    result.modules = {"net": Module("net", "Net")}
    site = FixedSite(Location("train.py", 1))
    result.add(Sharded(site=site, module="net", ranks=Ranks.ONE))
    result.add(Called(site=site, module="net", ranks=Ranks.ONE, collective=True))
    assert unmatched_events(result) == []


def test_two_tests_of_the_same_rank_are_no_counterparts() -> None:
    found = trace("0(rank == 0): state_dict", "0(rank == 0 and last): state_dict")
    assert lines(found) == []  # which ranks these are is not known
    for event in found:
        event.guards = tuple(replace(guard, rank=0) for guard in event.guards)
    assert lines(found) == [1, 2]
    second = found.events[1]
    second.guards = tuple(replace(guard, rank=1) for guard in second.guards)
    assert lines(found) == []
