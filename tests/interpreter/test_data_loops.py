"""Loops over constants that compute data make a few turns."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest
from programs import program

from fsdplint.interpreter import data_loops
from fsdplint.interpreter.dispatch import EXECUTORS
from fsdplint.trace import Sharded

INDICES = f"INDICES = {list(range(40))}\n"
BLOCKS = f"blocks = [{', '.join(['Block()'] * 40)}]\n"
SIZES = "SIZES = [128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536]\n"
TABLE = "table = []\nfor height in SIZES:\n    for width in SIZES:\n        table.append((height, width))\n"
COUNT = "total = 0\nfor a in SIZES:\n    for b in SIZES:\n        if a > b:\n            total += a * b\n"
ENTRIES = "names = {}\nfor a in SIZES:\n    for b in SIZES:\n        names[f'{a}x{b}'] = a * b\n"


def executed(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> int:
    """How many lines the runs of a program execute."""
    made = []
    execute = EXECUTORS[cst.SimpleStatementLine]
    monkeypatch.setitem(
        EXECUTORS, cst.SimpleStatementLine, lambda run, node: made.append(1) or execute(run, node)
    )
    program(folder, body)
    monkeypatch.setitem(EXECUTORS, cst.SimpleStatementLine, execute)
    return len(made)


@pytest.mark.parametrize("loops", [TABLE, COUNT, ENTRIES])
def test_a_loop_that_computes_data_makes_a_few_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loops: str
) -> None:
    few = executed(tmp_path, monkeypatch, SIZES + loops)
    monkeypatch.setattr(data_loops, "MOST_STEPS", 10**6)
    assert few < executed(tmp_path, monkeypatch, SIZES + loops)


@pytest.mark.parametrize(
    "loops, test",
    [
        (TABLE, "len(table) == 144"),
        (COUNT, "total > 9"),
        (ENTRIES, "'1536x128' in names"),
        (TABLE, "height == 1536"),
    ],
)
def test_what_more_turns_would_change_is_unknown(tmp_path: Path, loops: str, test: str) -> None:
    body = f"{SIZES}{loops}model = Net()\nif {test}:\n    fully_shard(model)\n"
    found = program(tmp_path, body)
    assert {any(trace.of(Sharded)) for trace in found.traces} == {False, True}


@pytest.mark.parametrize(
    "loop",
    [
        "for i in INDICES:\n    fully_shard(blocks[i])\n",
        "chosen = []\nfor i in INDICES:\n    chosen.append(blocks[i])\n"
        "for block in chosen:\n    fully_shard(block)\n",
    ],
)
def test_a_loop_over_numbers_that_does_more_makes_all_turns(tmp_path: Path, loop: str) -> None:
    found = program(tmp_path, f"{INDICES}{BLOCKS}{loop}")
    assert [len(list(trace.of(Sharded))) for trace in found.traces] == [40]
