"""The journal of a write, with which several files change together even if the process is killed.

Before the first file is written, a journal with the old and new content of all files is put into a
folder above them. If the writer is killed, the next run that writes completes the write from the
journal and removes temporary files. An incomplete journal means that no file was written yet. The
writer holds a lock on its journal, so that no other run completes a write in progress.

A journal can arrive with a cloned repository, or with a folder that was copied during an
interrupted write. Therefore it names its files relative to its folder, and records the folder
(path, device and inode). A journal in any other folder, or owned by another user, is foreign. A
foreign journal is never completed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fsdplint.discovery.walk import JOURNAL_PREFIX
from fsdplint.edits.atomic_file import remove_temporary_files, replace_content, sync_folder

try:
    import fcntl
except ImportError:  # without locks, the writer of a journal counts as ended
    fcntl = None  # type: ignore[assignment]

WHOLE, PART = ".json", ".part"
PATIENCE = 10.0  # seconds to wait for another run that writes

_VERSION = 2
_HEADER = 65536  # largest size of the first line, which identifies the folder
_FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # those that the system supports


@dataclass(frozen=True)
class Entry:
    """One file of a write: its real path, its old content, and its new content."""

    target: str
    old: bytes
    new: bytes


class Interrupted(Exception):
    """An interrupted write must be completed first; the message tells the user how."""


class ForeignJournal(Interrupted):
    """A journal belongs to another user or folder; the message tells the user what to do."""


@contextlib.contextmanager
def journal(folder: str, entries: Sequence[Entry]) -> Iterator[None]:
    """Keep a journal in a folder while the files are written; remove it at the end.

    All files are below the folder.

    Raises:
        OSError: the journal cannot be written; the caller must not write any file.
    """
    import tempfile  # imported only by a run that writes

    folder = os.path.realpath(folder)
    descriptor, part = tempfile.mkstemp(prefix=JOURNAL_PREFIX, suffix=PART, dir=folder)
    whole = part.removesuffix(PART) + WHOLE
    try:
        _lock(descriptor)
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(_encode(folder, entries))
            stream.flush()
        os.fsync(descriptor)
        os.rename(part, whole)
        sync_folder(folder)
        yield
    finally:
        for path in (whole, part):
            with contextlib.suppress(OSError):
                os.unlink(path)
        os.close(descriptor)  # also releases the lock


def journals_in(folders: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The journals in some folders."""
    result = []
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            result += sorted(
                entry.path for entry in entries if entry.name.startswith(JOURNAL_PREFIX)
            )
    return result


def is_waiting(path: str) -> bool:
    """Whether `complete` would complete the interrupted write of a journal.

    Waits for a running writer. Writes nothing.

    Raises:
        ForeignJournal: see the class.
        Interrupted: another run is still writing after `PATIENCE` seconds.
    """
    if path.endswith(PART):  # no file was written yet
        return False
    with _open(path, os.O_RDONLY) as descriptor:
        if descriptor is None:
            return False
        _check_own(path, descriptor)
        _wait(path, descriptor)
        return os.path.exists(path)


def complete(path: str) -> list[str]:
    """Complete the write of a journal whose writer has ended; wait for a running writer.

    Returns:
        The files that were written; empty if nothing was left to write.

    Raises:
        ForeignJournal: the journal belongs to another user or folder; nothing is written.
        Interrupted: a file was changed since, or cannot be written.
    """
    with _open(path, os.O_RDWR) as descriptor:
        if descriptor is None:
            return []
        if not path.endswith(PART):
            _check_own(path, descriptor)
        _wait(path, descriptor)
        if not os.path.exists(path):  # its writer has ended in the meantime
            return []
        if path.endswith(PART):
            os.unlink(path)
            return []
        with open(descriptor, "rb", closefd=False) as stream:
            entries = _decode(path, stream.read())
        completed = _roll_forward(path, entries)
        os.unlink(path)
        return completed


def _roll_forward(path: str, entries: Sequence[Entry]) -> list[str]:
    waiting = []
    for entry in entries:
        content = _content(entry)
        if content == entry.old:
            waiting.append(entry)
        elif content != entry.new:
            raise Interrupted(
                f"an interrupted run of fsdplint has to be completed, but {entry.target} was "
                f"changed since; put its content back, or remove {path} to leave the files as "
                "they are"
            )
    for entry in entries:
        remove_temporary_files(entry.target)
    for entry in waiting:
        try:
            replace_content(entry.target, entry.new)
        except OSError as error:
            reason = error.strerror or error
            raise Interrupted(
                f"an interrupted run of fsdplint cannot be completed: {entry.target} cannot be "
                f"written ({reason})"
            ) from error
    return [entry.target for entry in waiting]


def _content(entry: Entry) -> bytes | None:
    """The content of the file; None if it is neither the old nor the new content."""
    try:
        status = os.lstat(entry.target)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size not in (len(entry.old), len(entry.new)):
            return None
        with open(entry.target, "rb") as stream:
            return stream.read()
    except OSError:
        return None


# Locks and format ------------------------------------------------------------------------------


def _lock(descriptor: int) -> None:
    if fcntl is not None:
        with contextlib.suppress(OSError):  # the file system has no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _wait(path: str, descriptor: int) -> None:
    """Wait for the writer of a journal. Raises Interrupted after `PATIENCE` seconds."""
    if fcntl is None:
        return
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise Interrupted(f"another run of fsdplint is writing files ({path})") from None
            time.sleep(0.05)
        except OSError:
            return


@contextlib.contextmanager
def _open(path: str, mode: int) -> Iterator[int | None]:
    """Open a journal; None if it no longer exists.

    Raises:
        ForeignJournal: it is a link, not a regular file, or belongs to another user.
    """
    try:
        descriptor = os.open(path, mode | sum(getattr(os, name, 0) for name in _FLAGS))
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        why = "is a link" if error.errno == errno.ELOOP else f"cannot be opened ({error.strerror})"
        raise _foreign_journal(path, why) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _foreign_journal(path, "is not a regular file")
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            raise _foreign_journal(path, "belongs to another user")
        yield descriptor
    finally:
        os.close(descriptor)


def _check_own(path: str, descriptor: int) -> None:
    """Refuse the journal of another folder.

    Raises:
        ForeignJournal: it belongs to another folder, or does not name its folder.
        Interrupted: it belongs to this folder, but its version is unknown.
    """
    line = os.read(descriptor, _HEADER).split(b"\n", 1)[0]
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        header = json.loads(line)
        recorded = {name: header[name] for name in ("folder", "device", "inode")}
        version = header["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _foreign_journal(path, "cannot be read by this version") from error
    if recorded != _identity(os.path.dirname(os.path.realpath(path))):
        raise _foreign_journal(path, "belongs to another folder, of which this is a copy")
    if version != _VERSION:
        raise _unknown_journal(path)


def _foreign_journal(path: str, why: str) -> ForeignJournal:
    return ForeignJournal(
        f"{path}: warning: this journal of an interrupted write {why}, so it is not "
        "completed; check the files and remove it"
    )


def _unknown_journal(path: str) -> Interrupted:
    return Interrupted(
        f"{path}: this version cannot read this journal; the version that wrote it can "
        "complete the write"
    )


def _identity(folder: str) -> dict[str, Any]:
    """The properties that distinguish a folder from its copies."""
    status = os.stat(folder)
    return {"folder": folder, "device": status.st_dev, "inode": status.st_ino}


def _encode(folder: str, entries: Sequence[Entry]) -> bytes:
    from base64 import b64encode

    header = {"version": _VERSION, **_identity(folder)}
    files = [
        {
            "path": os.path.relpath(entry.target, folder),
            "old": b64encode(entry.old).decode(),
            "new": b64encode(entry.new).decode(),
        }
        for entry in entries
    ]
    return f"{json.dumps(header)}\n{json.dumps(files)}\n".encode()


def _decode(path: str, data: bytes) -> list[Entry]:
    from base64 import b64decode

    folder = os.path.dirname(os.path.realpath(path))
    try:
        return [
            Entry(
                _resolve(path, folder, file["path"]),
                b64decode(file["old"]),
                b64decode(file["new"]),
            )
            for file in json.loads(data.split(b"\n", 1)[1])
        ]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise _unknown_journal(path) from error


def _resolve(path: str, folder: str, name: str) -> str:
    """The path of a file that a journal names. It is below the folder, and no link leads to it.

    Raises:
        Interrupted: the path violates this.
    """
    target = os.path.join(folder, name)
    if os.path.isabs(name) or os.path.realpath(target) != target:
        raise Interrupted(
            f"an interrupted run of fsdplint cannot be completed: {target} lies behind a link or "
            f"outside of {folder}; remove {path} to leave the files as they are"
        )
    return target
