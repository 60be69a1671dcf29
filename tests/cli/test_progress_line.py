"""The line that shows how far a command is: on a terminal after two seconds, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fsdplint.cli import progress

# A check that takes a while: the interpreter is replaced by one that waits.
SLOW = """\
import sys, time
import fsdplint.cli.progress as progress
import fsdplint.interpreter.exploration as exploration
from fsdplint.cli.main import main
progress.DELAY, progress.PERIOD = 0.05, 0.02
run = exploration.ProgramLoader.run
def slow(self):
    time.sleep(0.3)
    return run(self)
exploration.ProgramLoader.run = slow
main(sys.argv[1:])
"""
PROGRAM = """\
from torch import nn
from torch.distributed.fsdp import fully_shard

model = nn.Linear(4, 4)
fully_shard(model)
model.forward(1)
"""


def on_terminal(folder: Path, *arguments: str, code: str = SLOW) -> tuple[str, str]:
    """What a command writes to standard output, which is a pipe, and to a terminal."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=child,
        text=True,
    )
    os.close(child)
    output, _ = process.communicate(timeout=300)
    seen = b""
    while True:
        try:
            data = os.read(parent, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.close(parent)
    assert process.returncode in (0, 1), seen
    return output, seen.decode()


@pytest.fixture
def programs(folder: Path) -> Path:
    for name in ("one", "two", "three"):
        (folder / f"{name}.py").write_text(PROGRAM)
    return folder


@pytest.mark.parametrize(
    "arguments", [("check",), ("check", "--diff"), ("check", "--coverage"), ("plan",)]
)
def test_on_a_terminal(programs: Path, arguments: tuple[str, ...]) -> None:
    output, terminal = on_terminal(programs, *arguments, ".")
    lines = terminal.split("\r\x1b[K")
    assert lines[0] == ""
    shown = [line for line in lines[1:-1] if line]
    assert shown, terminal
    assert all(line.endswith(" s") for line in shown)
    if arguments != ("plan",):
        assert any(re.fullmatch(r"checking: [12] of 3 programs, \d+ s", line) for line in shown)
        assert "checking" not in output
    # The line is removed before anything else is written.
    assert not lines[-1].endswith(" s")
    plain = subprocess.run(
        [sys.executable, "-m", "fsdplint", *arguments, "."],
        cwd=programs,
        capture_output=True,
        text=True,
    )
    assert output == plain.stdout
    assert lines[-1].replace("\r\n", "\n") == plain.stderr


def test_not_in_a_pipe(programs: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLOW, "."], cwd=programs, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert (done.stderr, "\r" in done.stdout) == ("", False)


def test_a_quick_command_shows_nothing(programs: Path) -> None:
    quick = SLOW.replace("progress.DELAY, progress.PERIOD = 0.05, 0.02", "")
    quick = quick.replace("time.sleep(0.3)", "").replace("main(", "progress.DELAY = 60\nmain(", 1)
    _, terminal = on_terminal(programs, ".", code=quick)
    assert terminal == ""


def test_the_text() -> None:
    progress.PROGRESS.begin("checking", 40)
    progress.PROGRESS.advance()
    assert progress.text(12.3) == "checking: 1 of 40 programs, 12 s"
    progress.PROGRESS.begin()
    assert progress.text(2.0) == "reading files, 2 s"
