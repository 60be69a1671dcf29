"""Writing files: the old content or the new, never anything else."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fsdplint.discovery.walk import JOURNAL_PREFIX
from fsdplint.edits import journal
from fsdplint.edits.atomic_file import save
from fsdplint.edits.write import NewContent, WriteError, write

ROOT = Path(__file__).parent.parent.parent


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
from fsdplint.edits import journal
from fsdplint.edits.write import NewContent, WriteError, write
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


@pytest.mark.skipif(os.name != "posix", reason="needs links, pipes and modes")
def test_saving_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mask = os.umask(0o027)
    try:
        save("new", b"1")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(os.stat("new").st_mode) == 0o640
    os.chmod("new", 0o604)
    os.symlink("new", "link")
    os.symlink("later", "dangling")
    save("link", b"2")
    save(Path("dangling"), b"3")
    assert (Path("new").read_bytes(), Path("later").read_bytes()) == (b"2", b"3")
    assert stat.S_IMODE(os.stat("new").st_mode) == 0o604
    assert os.path.islink("link") and os.path.islink("dangling")
    # What is no regular file is written directly.
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    save("pipe", b"4")
    assert os.read(reader, 10) == b"4"
    os.close(reader)
    save(os.devnull, b"5")
    assert not stat.S_ISREG(os.stat(os.devnull).st_mode)
    if os.path.exists("/dev/fd"):  # as /dev/stdout: a name that leads to a pipe, or to an open file
        for reader, writer in (os.pipe(), (os.open("later", os.O_RDONLY), os.open("later", 1))):
            save(f"/dev/fd/{writer}", b"8")
            assert os.read(reader, 10) == b"8"
            os.close(reader)
            os.close(writer)
    # So is what cannot be replaced, as a file that is mounted by itself.
    with monkeypatch.context() as patch:

        def busy(*_: object) -> None:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

        patch.setattr(os, "replace", busy)
        save("new", b"6")
    assert Path("new").read_bytes() == b"6"
    assert sorted(os.listdir()) == ["dangling", "later", "link", "new", "pipe"]
    with pytest.raises(FileNotFoundError):
        save("gone/new", b"7")


def unchanged(folder: Path, files: list[NewContent]) -> bool:
    """Whether the files hold what they did and nothing lies beside them."""
    assert not [x.name for x in folder.iterdir() if x.name.startswith(".")]
    return all(Path(file.path).read_bytes() == file.old for file in files)


@pytest.mark.parametrize("step", ["mkstemp", "write", "chmod", "fsync", "replace"])
@pytest.mark.parametrize("failing_call", [1, 2, 3])
def test_a_full_disk_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, failing_call: int
) -> None:
    if step == "fsync" and failing_call == 2:
        return  # that of the folder, which not every system can do; it may fail
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
    assert re.search(r"[abc]\.py cannot be written", str(caught.value))
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
from fsdplint.edits import journal
from fsdplint.edits.write import NewContent, write
import fsdplint.edits.journal
number, paths = int(sys.argv[1]), sys.argv[2:]
files = [NewContent(path, b"old " + path.encode(), b"new " + path.encode()) for path in paths]
ON_DISK = {
    "open", "write", "flush", "fsync", "rename", "replace", "unlink", "close", "chmod", "chown", "flock",
}
calls = 0
def killing(frame, event, function):
    global calls
    if event in ("c_call", "c_return") and function.__name__ in ON_DISK:
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
for number in range(number, 100_000):
    child = os.fork()
    if not child:
        sys.setprofile(killing)
        write(files)
        sys.setprofile(None)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(number, [open(path, "rb").read()[:3].decode() for path in paths], flush=True)
    if status == 0:
        break
    if sys.stdin.readline() != "on\\n":
        raise SystemExit("stopped")
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL and fork")
def test_killed_at_every_call_all_is_old_or_all_is_new_after_the_next_run(tmp_path: Path) -> None:
    """The process is killed before and after every single call that does something on the disk."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "pkg").mkdir()
    paths = [tmp_path / "a.py", tmp_path / "pkg" / "b.py", tmp_path / "pkg" / "c.py"]
    for path in paths:
        path.write_bytes(b"old " + str(path).encode())
    states: dict[tuple[str, ...], set[str]] = {}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, "1", *map(str, paths)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for line in process.stdout:
            at_kill = tuple(re.findall("old|new", line))
            for found in journal.journals_in([tmp_path]):
                journal.complete(found)
            after = {path.read_bytes()[:3].decode() for path in paths}
            assert len(after) == 1, line
            states.setdefault(at_kill, set()).update(after)
            lying_about = [x.name for x in tmp_path.rglob(".*")]
            assert not lying_about, line
            for path in paths:
                path.write_bytes(b"old " + str(path).encode())
            process.stdin.write("on\n")
            process.stdin.flush()
    assert process.returncode == 0
    old, new = "old", "new"
    # It was killed with none, some and all of the files replaced, and before any file was touched
    # the journal may or may not have been whole.
    assert set(states) == {(old, old, old), (new, old, old), (new, new, old), (new, new, new)}
    assert states[old, old, old] == {old, new}
    assert states[new, old, old] == states[new, new, old] == {new}


def test_what_was_edited_after_the_kill_is_left_alone(tmp_path: Path) -> None:
    paths = [tmp_path / "a.py", tmp_path / "b.py"]
    entries = [journal.Entry(str(path), b"old", b"new") for path in paths]
    paths[0].write_bytes(b"new")
    paths[1].write_bytes(b"edited")
    with journal.journal(str(tmp_path), entries):
        (path,) = journal.journals_in([tmp_path])
        kept = Path(path).read_bytes()
    Path(path).write_bytes(kept)  # as a killed process leaves it
    with pytest.raises(journal.Interrupted, match=r"b\.py was changed since"):
        journal.complete(path)
    assert [p.read_bytes() for p in paths] == [b"new", b"edited"]
    paths[1].write_bytes(b"old")
    assert journal.complete(path) == [str(paths[1])]
    assert [p.read_bytes() for p in paths] == [b"new", b"new"]
    assert journal.journals_in([tmp_path]) == []


@pytest.mark.skipif(os.name != "posix", reason="needs locks")
def test_the_journal_of_a_run_that_is_at_work_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "PATIENCE", 0.1)
    with journal.journal(str(tmp_path), [journal.Entry(str(tmp_path / "a.py"), b"", b"new")]):
        (path,) = journal.journals_in([tmp_path])
        with pytest.raises(journal.Interrupted, match="another run"):
            journal.complete(path)


def test_a_journal_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / f"{JOURNAL_PREFIX}x{journal.WHOLE}"
    path.write_text('{"version": 2}')
    with pytest.raises(journal.Interrupted, match="cannot be read by this version"):
        journal.complete(str(path))


def test_what_a_killed_run_left_beside_a_report_is_removed(tmp_path: Path) -> None:
    """Once no run can be writing it any more; files of other reports stay."""
    old, new, other = (
        tmp_path / f".{name}.fsdplint-new"
        for name in ("report.json.abcdefgh", "report.json.ijklmnop", "report.json.md.abcdefgh")
    )
    for path in (old, new, other):
        path.write_text("x")
    for path in (old, other):
        os.utime(path, (1e9, 1e9))
    save(tmp_path / "report.json", b"{}")
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", new.name, other.name}
