"""A full disk: one line, exit code 2, and sources as they were."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import BAD, run

COMMANDS = [
    ["check", "--fix", "."],
    ["check", "--add-noqa", "."],
    ["baseline", "."],
    ["migrate", "--report", "report.md", "."],
]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A full disk with a program; the current folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing may be mounted here")
    monkeypatch.delenv("FSDPLINT_NO_CACHE")
    try:
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            (folder / "pyproject.toml").touch()
            (folder / "train.py").write_text(BAD)
            with pytest.raises(OSError), (folder / "fill").open("wb", 0) as file:
                while True:
                    file.write(bytes(4096))
            yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(disk: Path) -> None:
    assert run("check", ".").exit_code == 1  # without a cache
    assert run("check", "--diff", ".").exit_code == 1
    for command in COMMANDS:
        done = run(*command)
        assert done.exit_code == 2, done.output
        assert done.stderr.count("No space left on device") == 1
        assert done.stderr.count("\n") == 1 and "standard output" not in done.stderr
        assert (disk / "train.py").read_text() == BAD
        left = {path.name for path in disk.iterdir()} - {".fsdplint_cache"}
        assert left == {"pyproject.toml", "train.py", "fill"}
