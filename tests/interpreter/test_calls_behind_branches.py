"""Branches that name nothing of the contract, but whose calls lead to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import entry_runs, load
from fsdplint.trace import Collective

TRAIN = """\
import os, sys
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
import storage
from storage import restore, Restorer

{found}

def fit(folder):
    model = torch.nn.Linear(2, 2)
    fully_shard(model)
    first = 0
    {branch}
    for _ in range(first, 10):
        model(torch.ones(2)).sum().backward()

fit(sys.argv[1])
"""
STORAGE = """\
import torch.distributed as dist

def restore(model, folder):
    return count(model, folder)

def count(model, folder):
    dist.barrier()
    return 3

class Restorer:
    def __init__(self, model):
        self.model = model
    def run(self, folder):
        return count(self.model, folder)
"""
FOUND = {
    "two returns": "def found(at):\n    if os.path.isdir(at):\n        return True\n    return False",
    "a variable": "def found(at):\n    one = False\n    if os.path.isdir(at):\n        one = True\n    return one",
    "an attribute": "class Place:\n    there = False\nplace = Place()\n"
    "def found(at):\n    if os.path.isdir(at):\n        place.there = True\n    return place.there",
    "no path": "def found(at):\n    if not os.path.isdir(at):\n        return None\n    return at",
}
CALLS = {
    "an imported function": "restore(model, folder)",
    "a function of a module": "storage.restore(model, folder)",
    "a method": "Restorer(model).run(folder)",
    "an import in the branch": "__import__",
}


def program(folder: Path, found: str, branch: str) -> Path:
    (folder / "storage.py").write_text(STORAGE)
    file = folder / "train.py"
    file.write_text(TRAIN.format(found=found, branch=branch))
    return file


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("found", FOUND)
def test_a_call_in_a_branch_is_followed(found: str, call: str, tmp_path: Path) -> None:
    code = CALLS[call]
    if code == "__import__":
        code = "from storage import count as restored\n        first = restored(model, folder)"
    else:
        code = f"first = {code}"
    branch = f"if found(folder):\n        {code}"
    file = program(tmp_path, FOUND[found], branch)
    programs = [trace for trace in load([file]).traces if trace.complete]
    assert [event for trace in programs for event in trace.of(Collective)]


@pytest.mark.parametrize("call", ["print(folder)", "os.makedirs(folder)", "len(storage.__name__)"])
def test_no_run_is_aimed_at_calls_that_lead_to_nothing(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    run = entry_runs.EntryRuns._make
    monkeypatch.setattr(
        entry_runs.EntryRuns, "_make", lambda self, one: (made.append(one), run(self, one))
    )
    load([program(tmp_path, FOUND["two returns"], f"if found(folder):\n        {call}")])
    assert [one for one in made if one.forced] == []
