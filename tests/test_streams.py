"""Standard streams that a process was started without, and a current folder that is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import BAD

PATIENCE = 240  # seconds: so long that only what never ends meets it


def run(folder: Path, closed: tuple[int, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = f"exec {sys.executable} -m fsdplint {' '.join(arguments)}"
    redirections = "".join(f" {one}>&-" for one in closed)
    done = subprocess.run(
        ["sh", "-c", command + redirections],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_a_closed_stream_changes_nothing(tmp_path: Path, closed: tuple[int, ...]) -> None:
    (tmp_path / "train.py").write_text(BAD)
    done = run(tmp_path, closed, "check", "--fix", "--exit-non-zero-on-fix", "train.py")
    assert done.returncode == 1
    assert ("Fixed 1 finding" in done.stdout) == (1 not in closed)
    assert "model.forward" not in (tmp_path / "train.py").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


def test_standard_input_that_is_closed_is_no_empty_program(tmp_path: Path) -> None:
    done = run(tmp_path, (0,), "check", "-")
    assert done.returncode == 2
    assert done.stderr == "error: standard input cannot be read: Bad file descriptor\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_wrong_options_where_errors_cannot_be_said(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "fsdplint", "check", "--none-such"]
        assert subprocess.run(command, stderr=full, timeout=PATIENCE).returncode == 2


@pytest.mark.parametrize("command", ["check .", "prove a.py", "migrate ."])
def test_a_current_folder_that_is_gone(tmp_path: Path, command: str) -> None:
    (tmp_path / "gone").mkdir()
    line = f'cd gone && rmdir ../gone && exec "{sys.executable}" -m fsdplint {command}'
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "standard output" not in done.stderr
