"""Each command that writes, killed at each of its writes: the next run has the same result."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import BOTH, FIXTURES

from fsdplint.cli.main import main
from fsdplint.edits.atomic_file import SUFFIX

COMMANDS = {
    "fix": ["check", "--fix", "--exit-zero", "."],
    "noqa": ["check", "--add-noqa", "."],
    "report": ["check", "--exit-zero", "-o", "out/report.json", "--output-format", "json", "."],
    "baseline": ["baseline", "."],
    "migrate": ["migrate", "--fix", "--exit-zero", "."],
    "migration report": ["migrate", "--exit-zero", "--report", "report.md", "."],
    "assist": ["migrate", "--assist", "--fix", "--exit-zero", "."],
    "annotate": ["migrate", "--annotate", "--exit-zero", "."],
    "plan": ["plan", "--output-format", "svg", "-o", "plan.svg", "."],
    "cache": ["check", "--exit-zero", "--cache-dir", "cache", "."],
    "clean": ["clean", "."],
}
CALLS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "os.symlink"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
KILLED = -signal.SIGKILL


def in_child(folder: Path, arguments: list[str], kill_at: int = 0) -> int:
    """Run a command in a process of its own; the process is killed at a write in the folder.

    kill_at: the number of the write, from 1; 0 for none.
    Returns: the exit code, or the negative number of a signal.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        os.chdir(folder)
        sys.stdout = sys.stderr = io.StringIO()
        if kill_at:
            sys.addaudithook(killer(folder, kill_at))
        main(arguments, standalone_mode=True)
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os._exit(code)


def killer(folder: Path, kill_at: int) -> Callable[[str, tuple[object, ...]], None]:
    seen = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event != "open" and event not in CALLS:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITING):
            return
        path = arguments[0]
        if not isinstance(path, str | bytes | os.PathLike):
            return
        if not os.path.abspath(os.fsdecode(path)).startswith(str(folder)):
            return
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def project(folder: Path, name: str) -> Path:
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\nversion = '1'\n")
    if name in ("assist", "annotate"):
        shutil.copy(FIXTURES.parent / "fsdp1_blocked" / "batch_norm.py", folder / "blocked.py")
    elif name == "migrate":
        shutil.copy(FIXTURES / "flat_script.py", folder / "old.py")
    else:
        (folder / "train.py").write_text(BOTH)
    (folder / ".fsdplint_cache").mkdir()
    (folder / ".fsdplint_cache" / "CACHEDIR.TAG").write_text("Signature: x\n")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """All files but those of caches, whose content depends on the time."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "cache" not in str(path.relative_to(folder))
    }


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_every_write(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "cache":
        monkeypatch.delenv("FSDPLINT_NO_CACHE", raising=False)
    arguments = COMMANDS[name]
    expected = project(tmp_path / "expected", name)
    assert in_child(expected, arguments) in (0, 1)
    for kill_at in range(1, 100):
        folder = project(tmp_path / f"run{kill_at}", name)
        before = contents(folder)
        end = in_child(folder, arguments, kill_at)
        if end != KILLED:
            break
        left = contents(folder)
        for path, text in before.items():  # no source is lost or written in part
            assert left.get(path) in (text, contents(expected).get(path)), path
        for leftover in folder.rglob(f"*{SUFFIX}"):  # time passes
            os.utime(leftover, (1e9, 1e9))
        assert in_child(folder, arguments) in (0, 1)
        assert contents(folder) == contents(expected), f"killed at write {kill_at}"
    assert kill_at > 1 or name == "clean", "the command wrote nothing"
    assert end in (0, 1)
