"""One process records several programs, each in a recording of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from two_ranks import TwoRanks

from fsdplint.runtime.recorder.recording import Recording, begin, current

PROGRAM = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""

RUNS = """
import sys
from fsdplint.runtime.launch import runner

program, *folders = sys.argv[1:]  # this process is prepared
for folder in folders:
    options = runner.Options(record=folder, device="cpu", target=program)
    runner.start(options)
    assert runner.run(options) == 0
"""


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "rank0.jsonl").read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines()]
    return [line for line in found if line["t"] in ("event", "update", "module", "layout")]


def test_a_second_run_in_one_process_knows_nothing_of_the_first(
    two_ranks: TwoRanks, tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM, encoding="utf-8")
    folders = [tmp_path / "first", tmp_path / "second"]
    outcome = two_ranks.run(RUNS, args=[str(program), *map(str, folders)], world=1)
    assert outcome.status == "ok", str(outcome)
    first, second = map(lines, folders)
    assert {line["kind"] for line in first if line["t"] == "event"} >= {
        "optimizer-built",
        "optimizer-stepped",
        "state-taken",
        "saved",
    }
    assert second == first


def test_a_new_recording_shares_no_part_with_the_last() -> None:
    before = current()
    after = begin()
    assert current() is after
    for name, part in vars(Recording()).items():
        assert type(getattr(after, name)) is type(part)
        assert getattr(after, name) is not getattr(before, name)
