"""`fsdplint run` from its command line: what it says, its exit code, what it leaves."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from fsdplint.cli.main import main
from fsdplint.engine.operations import check_files
from fsdplint.engine.session import Session
from fsdplint.runtime.launch.launcher import Launch, LaunchError

START = """\
import sys
import time
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Linear(4, 1)
"""
LATE = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1){comment}
fully_shard(model)
"""
EARLY = """\
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAIN = """\
for step in range(3):
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
with open(f"seen{dist.get_rank()}.txt", "w") as file:
    print(step, *sys.argv[1:], file=file)
"""
END = "dist.destroy_process_group()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(folder: Path, text: str, *args: str) -> Result:
    (folder / "train.py").write_text(text)
    result = CliRunner().invoke(main, ["run", "train.py", *args])
    mine = f"fsdplint-run-{os.getpid()}-*"
    assert not list(Path(tempfile.gettempdir()).glob(mine)), "a temporary folder is left behind"
    return result


@pytest.mark.usefixtures("forked")
def test_findings_and_the_arguments_of_the_program(folder: Path) -> None:
    text = START + LATE.format(comment="") + TRAIN + END
    result = run(folder, text, "--output-format", "concise", "--", "--epochs", "3", "-v")
    assert result.exit_code == 1, result.output
    assert result.stdout.startswith("train.py:10:13: FSDP103 `SGD` is built before"), result.output
    assert "Found 1 error." in result.stdout
    assert [(folder / f"seen{rank}.txt").read_text() for rank in (0, 1)] == [
        "2 --epochs 3 -v\n"
    ] * 2


@pytest.mark.usefixtures("forked")
def test_a_comment_and_the_options_turn_findings_off(folder: Path) -> None:
    comment = "  # fsdplint: ignore[FSDP103]"
    result = run(folder, START + LATE.format(comment=comment) + TRAIN + END, "--steps", "1")
    assert result.exit_code == 0, result.output
    assert result.stdout == "All checks passed.\n"
    assert not (folder / "seen0.txt").exists()  # the run was ended before


@pytest.mark.usefixtures("forked")
def test_a_clean_program_in_json(folder: Path) -> None:
    options = ("--output-format", "json", "--keep", "kept", "-o", "reports/run.json")
    result = run(folder, START + EARLY + TRAIN + END, *options)
    assert result.exit_code == 0, result.output
    assert (result.stdout, (folder / "reports" / "run.json").read_text()) == ("", "[]\n")
    assert (folder / "kept" / "rank1.jsonl").exists()


@pytest.mark.usefixtures("forked")
def test_a_crash_shows_what_was_found_before(folder: Path) -> None:
    text = START + LATE.format(comment="") + TRAIN + 'raise ValueError("no more data")\n'
    options = ("--output-format", "json", "--nproc-per-node", "1")
    result = run(folder, text, *options)
    assert result.exit_code == 1, result.output
    (finding,) = json.loads(result.stdout)
    assert (finding["code"], finding["filename"]) == ("FSDP103", "train.py")
    assert finding["location"] == {"row": 10, "column": 13}
    assert "rank 0: raised at train.py:18" in result.stderr
    assert "ValueError: no more data" in result.stderr


@pytest.mark.usefixtures("forked")
def test_a_hang_names_the_line_of_each_rank(folder: Path) -> None:
    text = START + "if dist.get_rank() == 1:\n    time.sleep(1000)\ndist.barrier()\n"
    result = run(folder, text)
    assert result.exit_code == 2, result.output
    assert "Nothing was found in what ran of the program." in result.stdout
    assert "no rank has done anything for a while" in result.stderr
    assert "rank 0: hung at train.py:12" in result.stderr
    assert "rank 1: hung at train.py:11" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("missing.py",), "missing.py: no such file or folder"),
        (("train.py", "--select", "FSDP999"), "unknown rule 'FSDP999'"),
        (("train.py", "--keep", "."), "is not empty"),
        (("train.py", "--statistics", "--output-format", "sarif"), "not sarif"),
    ],
)
def test_what_cannot_be_done_is_said(folder: Path, args: tuple[str, ...], message: str) -> None:
    (folder / "train.py").write_text("")
    result = CliRunner().invoke(main, ["run", *args])
    assert result.exit_code == 2
    assert re.search(message, result.stderr), result.output


def test_how_often_each_rule_was_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "train.py").write_text(START + LATE.format(comment="") + TRAIN + END)
    result = check_files(Session([Path("train.py")]))
    watched = SimpleNamespace(result=result, output_format="full", run=SimpleNamespace(ok=True))
    monkeypatch.setattr("fsdplint.runtime.proof.run_once.watch", lambda *_: watched)
    shown = CliRunner().invoke(main, ["run", "train.py", "--statistics", "-o", "counts.txt"])
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert re.match(r"1\tFSDP103\t.*optimizer-before-shard", (folder / "counts.txt").read_text())


@pytest.mark.parametrize(("given", "seconds"), [([], 600.0), (["--timeout", "40"], 40.0)])
def test_the_time_limit_is_that_of_the_launch(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], seconds: float
) -> None:
    jobs: list[Launch] = []

    def stop(job: Launch, tick: object) -> None:
        jobs.append(job)
        raise LaunchError("stopped here")

    monkeypatch.setattr("fsdplint.runtime.proof.run_once.launch", stop)
    result = run(folder, START + END, *given)
    assert "stopped here" in result.output
    assert [job.timeout for job in jobs] == [seconds]
