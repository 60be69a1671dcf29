"""How many elements a set has."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Sharded

UNKNOWN = {
    "call": "set((args.a, args.b, args.c))",
    "display": "{args.a, args.b}",
    "comprehension": "{one for one in [args.a, args.b]}",
    "frozenset": "frozenset([args.a, args.b])",
}


@pytest.mark.parametrize("elements", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_elements_may_be_equal(tmp_path: Path, elements: str) -> None:
    body = f"""
import argparse

args = argparse.ArgumentParser().parse_args()
if len({elements}) != 1:
    raise ValueError
fully_shard(Net())
"""
    assert list(events(program(tmp_path, body), Sharded))


KNOWN = {"{1, 2, 2}": 2, "set(['a', 'a'])": 1, "{Net, Block, Net}": 2, "{args}": 1}


@pytest.mark.parametrize(("elements", "number"), KNOWN.items())
def test_equal_elements_count_once(tmp_path: Path, elements: str, number: int) -> None:
    body = f"""
import argparse

args = argparse.ArgumentParser().parse_args()
if len({elements}) == {number}:
    fully_shard(Net())
"""
    found = program(tmp_path, body)
    assert all(list(trace.of(Sharded)) for trace in found.traces)
