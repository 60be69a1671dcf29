"""Collectives under a test of the rank's own data, on traces made by hand."""

from __future__ import annotations

from fsdplint.trace import Collective, FixedSite, Guard, GuardKind, Location, Trace
from fsdplint.trace.queries.own_data import undecided_collectives


def place(line: int) -> FixedSite:
    return FixedSite(Location("train.py", line))


def guard(text: str) -> Guard:
    """The guard of a test; "-" before its name: it is false; the same name: the same test."""
    name = text.lstrip("-")
    site = place(1000 + ord(name))
    return Guard(GuardKind.VARYING, name, name == text, site, own_data=place(999))


def lines(*steps: str) -> list[int]:
    """The collectives that not all ranks run, of steps "tests: api" in lines 1, 2, ..."""
    trace = Trace(producer="static")
    for line, step in enumerate(steps, 1):
        tests, api = step.split(": ")
        guards = tuple(guard(text) for text in tests.split())
        trace.add(Collective(site=place(line), guards=guards, collective=True, api=api))
    return [event.site.location().line for event in undecided_collectives(trace)]


def test_one_side_only() -> None:
    assert lines(": barrier", "a: barrier", ": barrier") == [2]
    assert lines(": barrier") == []


def test_both_sides() -> None:
    assert lines("-a: barrier", "a: barrier") == []
    assert lines("-a: reduce", "-a: barrier", "a: barrier") == [1]
    assert lines("-a: barrier", ": reduce", "a: barrier") == [1, 3]


def test_tests_in_tests() -> None:
    assert lines("-a: barrier", "a -b: barrier", "a b: barrier") == []
    assert lines("-a: barrier", "a b: barrier") == [1, 2]
    assert lines("a -b: reduce", "a b: reduce") == [2]  # the other one is its counterpart


def test_two_tests_after_each_other() -> None:
    assert lines("-a: barrier", "a: barrier", "-b: reduce", "b: reduce") == []
    assert lines("-a: barrier", "b: barrier") == [1, 2]
