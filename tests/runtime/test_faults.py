"""`fsdplint prove` with programs that hang, crash or find the disk full: what it says of each rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fsdplint.cli.main import main

PROGRAM = """\
import os
import resource
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Linear(64, 64)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    pass  # here
    model(torch.ones(8, 64)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
state = {name: value.full_tensor() for name, value in model.state_dict().items()}
if rank == 0:
    torch.save(state, "model.pt")
dist.destroy_process_group()
"""
HERE = PROGRAM.splitlines().index("    pass  # here") + 1
CALL, SAVE = HERE + 1, PROGRAM.splitlines().index('    torch.save(state, "model.pt")') + 1
LIMIT = "resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))"

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "before.py").write_text(PROGRAM)
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prove(folder: Path, fault: str, *args: str) -> tuple[Result, dict[str, Any]]:
    """The program against itself with this statement in its loop."""
    (folder / "after.py").write_text(PROGRAM.replace("pass  # here", fault))
    out = folder / "proof.json"
    result = CliRunner().invoke(
        main, ["prove", "before.py", "--against", "after.py", "--json", str(out), *args]
    )
    return result, json.loads(out.read_text()) if out.exists() else {}


def test_a_rank_waits_for_a_collective_that_the_other_never_reaches(folder: Path) -> None:
    result, proof = prove(folder, "step == 1 and rank == 1 and dist.barrier()")
    assert result.exit_code == 1, result.output
    assert "REFUTED" in result.output
    ends = proof["after"]["ranks"]
    after = str(folder / "after.py")
    assert [end["status"] for end in ends] == ["hung", "hung"]
    assert [end["where"] for end in ends] == [f"{after}:{CALL}", f"{after}:{HERE}"]
    # A step of one unit: gathered, and reduced; then rank 1 is in the barrier in place of that.
    assert [end["collective"].partition(" ")[0] for end in ends] == ["all_gather", "barrier"]
    assert f"rank 1: hung at after.py:{HERE}" in result.output
    assert "last collective: barrier (number " in result.output


def test_a_rank_dies(folder: Path) -> None:
    result, proof = prove(folder, "step == 1 and rank == 1 and os.kill(os.getpid(), 9)")
    assert result.exit_code == 1, result.output
    ends = proof["after"]["ranks"]
    assert ends[1]["status"] in ("died", "stopped")
    assert ends[1]["where"] == f"{folder}/after.py:{CALL + 2}"  # of its last event: zero_grad()
    assert "rank 1: " in result.output


def test_a_rank_raises(folder: Path) -> None:
    result, proof = prove(folder, "step == 1 and rank == 1 and 1 / 0")
    assert result.exit_code == 1, result.output
    assert proof["after"]["ranks"][1]["status"] == "raised"
    assert f"rank 1: raised at after.py:{HERE}" in result.output
    assert "ZeroDivisionError" in result.output


def test_no_step_is_made(folder: Path) -> None:
    result, _ = prove(folder, "break")
    assert result.exit_code == 1, result.output
    assert "optimizer steps per rank: [3, 3] before, [0, 0] after" in result.output


def test_no_step_is_made_in_either(folder: Path) -> None:
    (folder / "before.py").write_text(PROGRAM.replace("pass  # here", "break"))
    result, _ = prove(folder, "break")
    assert result.exit_code == 1, result.output
    assert "no optimizer step ran: nothing was trained" in result.output


def test_no_room_for_the_record(folder: Path) -> None:
    result, proof = prove(folder, LIMIT.format(4096))
    assert result.exit_code == 2, result.output
    assert not proof
    assert "the record of rank 0 could not be written: [Errno 27] File too large" in result.output
    assert "give --keep a folder on another disk, or set TMPDIR to one" in result.output


def test_no_room_for_the_checkpoint(folder: Path) -> None:
    text = PROGRAM.replace("(64, 64)", "(64, 4096)")  # a megabyte
    text = text.replace("pass  # here", LIMIT.format(2**19))
    (folder / "before.py").write_text(text)
    result, _ = prove(folder, "pass")
    assert result.exit_code == 2, result.output
    assert (
        f"the disk was full while the program before ran: rank 0 at {folder}/before.py:{SAVE}"
        in result.output
    )


def test_the_before_one_hangs_and_the_after_one_does_not(folder: Path) -> None:
    fault = "step == 1 and rank == 1 and dist.barrier()"
    (folder / "before.py").write_text(PROGRAM.replace("pass  # here", fault))
    result, _ = prove(folder, "pass")
    assert result.exit_code == 1, result.output
    assert "NOT COMPARABLE" in result.output
    assert f"rank 1: hung at before.py:{HERE}" in result.output
