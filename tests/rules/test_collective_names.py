"""What collectives are called in messages: words of the program, not names of events."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code
from fsdplint.trace import (
    BackwardRun,
    Called,
    Event,
    FixedSite,
    Gathered,
    Location,
    MeshBuilt,
    Module,
    ProcessGroupDestroyed,
    ProcessGroupInit,
    Replicated,
    Sharded,
    Trace,
    Wrapped,
)
from fsdplint.trace.queries.collective_names import collective_text

PROGRAM = """\
import os
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    model = {sharding}(nn.Linear(4, 4))
    dist.barrier()


if int(os.environ["RANK"]) == 0:
    main()
else:
    while True:
        try:
            main()
        finally:
            dist.barrier()
"""


@pytest.mark.parametrize(
    ("sharding", "text"),
    [("FSDP", "the sharding of `Linear`"), ("DDP", "`DistributedDataParallel` of `Linear`")],
)
def test_a_model_that_one_rank_shards(sharding: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM.format(sharding=sharding), encoding="utf-8")
    found = check(load([file]), [rule_by_code("FSDP501")()])
    notes = [note for finding in found for _, note in finding.related]
    assert f"{text} too" in notes
    assert not any("module-" in note for note in notes)


SITE = FixedSite(Location("train.py", 1, 0))
REQUIRED = {"module": "m1", "inner": "m1", "via": "call", "gathered": True, "mesh": "mesh1"}
EVENTS = (
    *(BackwardRun, Called, Gathered, MeshBuilt, ProcessGroupDestroyed, ProcessGroupInit),
    *(Replicated, Sharded, Wrapped),
)


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_without_an_api(kind: type[Event]) -> None:
    names = {field.name for field in dataclasses.fields(kind)}
    event = kind(SITE, **{name: value for name, value in REQUIRED.items() if name in names})
    trace = Trace(producer="static")
    trace.modules["m1"] = Module("m1", "Net")
    text = collective_text(trace, event)
    assert "-" not in text and text != "a collective"
