"""Two commands at the same time in one folder: no file is lost, and each is whole."""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from command import BOTH, FIXTURES

from fsdplint.cli.main import main
from fsdplint.edits.atomic_file import SUFFIX

FIX = ["check", "--fix", "--exit-zero", "."]
MIGRATE = ["migrate", "--fix", "--exit-zero", "."]
PAIRS = {
    "fix and fix": (FIX, FIX),
    "migrate and migrate": (MIGRATE, MIGRATE),
    "fix and migrate": (FIX, MIGRATE),
    "check and fix": (["check", "--exit-zero", "."], FIX),
    "check and check": (["check", "--exit-zero", "."], ["check", "--exit-zero", "."]),
    "clean and check": (["clean", "."], ["check", "--exit-zero", "."]),
    "baseline and baseline": (["baseline", "."], ["baseline", "."]),
}
FOLDERS = 3  # the times at which the second command begins


def start(folder: Path, arguments: list[str]) -> int:
    """Start a command in a process of its own, and return its number."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.chdir(folder)
        sys.stdout = sys.stderr = io.StringIO()
        main(arguments, standalone_mode=True)
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os._exit(code)


def end_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\nversion = '1'\n")
    (folder / "train.py").write_text(BOTH)
    shutil.copy(FIXTURES / "flat_script.py", folder / "old.py")
    return folder


def sources(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.py"))}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
@pytest.mark.parametrize("pair", PAIRS)
def test_two_commands(pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FSDPLINT_NO_CACHE", raising=False)
    one, two = PAIRS[pair]
    expected = project(tmp_path / "expected")
    begun = time.monotonic()
    for arguments in (one, two):
        assert end_of(start(expected, arguments)) in (0, 1)
    whole = (time.monotonic() - begun) / 2
    possible = {name: {text} for name, text in sources(expected).items()}
    for name, text in sources(project(tmp_path / "before")).items():
        possible[name].add(text)
    for number in range(FOLDERS):
        folder = project(tmp_path / f"run{number}")
        first = start(folder, one)
        time.sleep(number * whole / FOLDERS)
        second = start(folder, two)
        # A command may refuse files that the other one has changed under it.
        assert {end_of(first), end_of(second)} <= {0, 1, 2}
        left = sources(folder)
        assert left.keys() == possible.keys()
        assert all(text in possible[name] for name, text in left.items())
        assert not list(folder.rglob(f"*{SUFFIX}"))
        assert not list(folder.glob(".fsdplint-journal*"))
        for arguments in (one, two):
            assert end_of(start(folder, arguments)) in (0, 1)
        assert sources(folder) == sources(expected)
