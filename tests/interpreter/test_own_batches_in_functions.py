"""Batches of a rank's own that go through dicts, coroutines and event loops."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_batches import undecided

PROGRAM = """\
import asyncio
import trio
import uvloop

async def prepare(rows):
    return rows

async def prepare_later(rows):
    return await prepare(rows)

loop = asyncio.new_event_loop()
rows = DataLoader(named_rows, sampler=DistributedSampler(named_rows))
for row in rows:
    row = {made}
    model(row["x"])
    if row.get("name", "") != "last":
        dist.barrier()
"""
KEEPING = (
    "dict(row)",
    "{**row, 'seen': True}",
    "asyncio.run(prepare(row))",
    "uvloop.run(prepare_later(row))",
    "loop.run_until_complete(prepare(row))",
    "asyncio.get_event_loop().run_until_complete(prepare_later(row))",
    "loop.run_until_complete(asyncio.wait_for(prepare(row), 5))",
    "trio.run(prepare, row)",
    "loop.run_until_complete(loop.run_in_executor(None, dict, row))",
)
LOSING = (
    "{**row, **settings}",
    "dict(row, **settings)",
    "exchange(row)",
    "loop.run_until_complete(exchange(row))",
)


@pytest.mark.parametrize("made", KEEPING)
def test_own_batches_stay_own(tmp_path: Path, made: str) -> None:
    body = PROGRAM.replace("{made}", made)
    assert undecided(tmp_path, body) == ['row.get("name", "") != "last"']


@pytest.mark.parametrize("made", LOSING)
def test_batches_that_unseen_code_may_replace(tmp_path: Path, made: str) -> None:
    body = "from settings import settings, exchange\n" + PROGRAM.replace("{made}", made)
    assert undecided(tmp_path, body) == []
