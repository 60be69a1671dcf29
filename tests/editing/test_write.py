"""Writing files: the old content or the new, never anything else."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fsdplint.editing.write import NewContent, WriteError, write

ROOT = Path(__file__).parent.parent


def changes(folder: Path, *names: str) -> list[NewContent]:
    """Files with content, and what they shall hold."""
    result = []
    for name in names:
        path = folder / name
        path.write_bytes(b"old " + name.encode())
        result.append(NewContent(str(path), path.read_bytes(), b"new " + name.encode()))
    return result


def test_content_and_mode(tmp_path: Path) -> None:
    files = changes(tmp_path, "a.py", "b.py")
    (tmp_path / "a.py").chmod(0o755)
    (tmp_path / "b.py").chmod(0o600)
    write(files)
    assert (tmp_path / "a.py").read_bytes() == b"new a.py"
    assert (tmp_path / "a.py").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "b.py").stat().st_mode & 0o7777 == 0o600
    assert sorted(x.name for x in tmp_path.iterdir()) == ["a.py", "b.py"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    files = changes(tmp_path / "real", "a.py")
    link = tmp_path / "link.py"
    link.symlink_to(Path("real") / "a.py")
    write([NewContent(str(link), files[0].old, b"new")])
    assert link.is_symlink()
    assert (tmp_path / "real" / "a.py").read_bytes() == b"new"
    assert sorted(x.name for x in tmp_path.rglob("*")) == ["a.py", "link.py", "real"]


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes(tmp_path, "a.py")
    monkeypatch.chdir(tmp_path)
    write([NewContent("a.py", b"old a.py", b"new")])
    assert Path("a.py").read_bytes() == b"new"


def test_a_file_that_changed_is_left_alone(tmp_path: Path) -> None:
    files = changes(tmp_path, "a.py", "b.py")
    (tmp_path / "b.py").write_bytes(b"edited")
    with pytest.raises(WriteError, match=r"b\.py was changed"):
        write(files)
    assert unchanged(tmp_path, files[:1])
    assert (tmp_path / "b.py").read_bytes() == b"edited"


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    files = changes(tmp_path, "a.py", "b.py")
    (tmp_path / "b.py").unlink()
    with pytest.raises(WriteError, match=r"b\.py"):
        write(files)
    assert unchanged(tmp_path, files[:1])


def test_something_else_than_a_file(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="not a regular file"):
        write([NewContent(str(tmp_path), b"", b"new")])


PROTECTED = """
import os, sys
from fsdplint.editing.write import NewContent, WriteError, write
if os.geteuid() == 0:  # root may write everywhere
    os.setgid(65534)
    os.setuid(65534)
try:
    write([NewContent(sys.argv[1], b"old", b"new")])
except WriteError as error:
    print(error)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "reason"),
    [
        (0o555, 0o666, "a.py cannot be written (Permission denied); it is unchanged"),
        (0o777, 0o444, "a.py is write-protected; it is unchanged"),
        (0o777, 0o222, "a.py cannot be written (Permission denied); it is unchanged"),
    ],
)
def test_what_is_write_protected(folder_mode: int, file_mode: int, reason: str) -> None:
    # Not under tmp_path, whose folders only their owner may enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "a.py"
        path.write_bytes(b"old")
        path.chmod(file_mode)
        folder.chmod(folder_mode)
        done = subprocess.run(
            [sys.executable, "-c", PROTECTED, str(path)],
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        )
        folder.chmod(0o777)
        path.chmod(0o666)
        assert done.stdout.strip().endswith(reason)
        assert [x.name for x in folder.iterdir()] == ["a.py"]
        assert path.read_bytes() == b"old"


def unchanged(folder: Path, files: list[NewContent]) -> bool:
    """Whether the files hold what they did and nothing lies beside them."""
    assert not [x.name for x in folder.iterdir() if x.name.startswith(".")]
    return all(Path(file.path).read_bytes() == file.old for file in files)


@pytest.mark.parametrize("step", ["mkstemp", "write", "chmod", "fsync", "replace"])
@pytest.mark.parametrize("failing_call", [1, 2])
def test_a_full_disk_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, failing_call: int
) -> None:
    files = changes(tmp_path, "a.py", "b.py", "c.py")
    calls = 0

    def failing(original):  # type: ignore[no-untyped-def]
        def call(*args, **kwargs):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += 1
            if calls == failing_call:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return original(*args, **kwargs)

        return call

    if step == "mkstemp":
        monkeypatch.setattr(tempfile, "mkstemp", failing(tempfile.mkstemp))
    elif step == "write":
        original = os.fdopen

        def opened(*args, **kwargs):  # type: ignore[no-untyped-def]
            stream = original(*args, **kwargs)
            failing(lambda: None)()
            return stream

        monkeypatch.setattr(os, "fdopen", opened)
    else:
        monkeypatch.setattr(os, step, failing(getattr(os, step)))
    with pytest.raises(WriteError, match="No space left on device") as caught:
        write(files)
    assert caught.value.errno == errno.ENOSPC
    assert ("a.py" if failing_call == 1 else "b.py") in str(caught.value)
    assert unchanged(tmp_path, files)


def test_an_interrupt_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = changes(tmp_path, "a.py", "b.py")
    original = os.replace
    calls: list[object] = []

    def interrupted(*args: str) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        original(*args)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(files)
    assert unchanged(tmp_path, files)


KILLED = """
import os, signal, sys
from fsdplint.editing.write import NewContent, write
name, number, paths = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
calls = 0
def dying(original, after):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == number and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call
name, after, _ = name.partition("+")
setattr(os, name, dying(getattr(os, name), bool(after)))
write([NewContent(path, b"o" * 300_000, b"n" * 400_000) for path in paths])
print("not reached")
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize(
    ("step", "new_files"),
    [
        ("fdopen 1", 0),
        ("fsync 1", 0),
        ("fsync+ 2", 0),
        ("replace 1", 0),
        ("replace+ 1", 1),
        ("replace 2", 1),
        ("replace+ 2", 2),
        ("fsync 3", 2),
    ],
)
def test_a_killed_process_leaves_whole_files(tmp_path: Path, step: str, new_files: int) -> None:
    paths = [tmp_path / "a.py", tmp_path / "b.py"]
    for path in paths:
        path.write_bytes(b"o" * 300_000)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *step.split(), *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    contents = [path.read_bytes() for path in paths]
    assert contents == [b"n" * 400_000] * new_files + [b"o" * 300_000] * (2 - new_files)
