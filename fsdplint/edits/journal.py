"""The journal of a write: what makes several files change together, even if the process is killed.

Before the first file is touched, a journal with the old and the new content of all of them is put
into a folder that all of them lie below. The next run that writes, and finds a journal whose writer
is gone, brings every file to its new content and removes what was left lying about; if the journal
itself was cut short, no file had been touched yet. The writer holds a lock on its journal, so that
nobody takes over from it while it is at work.

A journal can come from elsewhere: with a repository that somebody cloned, or with a folder that was
copied while a write was interrupted. So it names its files relative to its folder, and says which
folder that is (path, device and inode). It is foreign in any other folder, or where another user
owns it, and a foreign journal is never completed.
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
except ImportError:  # no locks: a journal is taken for one of a process that is gone
    fcntl = None  # type: ignore[assignment]

WHOLE, PART = ".json", ".part"
PATIENCE = 10.0  # seconds that another run may take to write

_VERSION = 2
_HEADER = 65536  # bytes that the first line, which says whose journal it is, may have
_FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # as far as the system has them


@dataclass(frozen=True)
class Entry:
    """One file of a write: where it really is, what it held, and what it is to hold."""

    target: str
    old: bytes
    new: bytes


class Interrupted(Exception):
    """An interrupted write that has to be completed first; the message says what to do."""


class ForeignJournal(Interrupted):
    """A journal that is not one of this user and this folder; the message says what to do."""


@contextlib.contextmanager
def journal(folder: str, entries: Sequence[Entry]) -> Iterator[None]:
    """While the files are written: a journal in a folder. Gone when all is done or undone.

    All of the files lie below the folder.

    Raises:
        OSError: it cannot be written; no file may be touched then.
    """
    import tempfile  # a run that writes nothing does not pay for it

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
        os.close(descriptor)  # and with it the lock


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
    """Whether a journal is of an interrupted write that `complete` would complete.

    It waits for a writer that is still there. Nothing is written.

    Raises:
        ForeignJournal: see there.
        Interrupted: another run is writing for longer than it is waited for.
    """
    if path.endswith(PART):  # no file had been touched
        return False
    with _open(path, os.O_RDONLY) as descriptor:
        if descriptor is None:
            return False
        _check_own(path, descriptor)
        _wait(path, descriptor)
        return os.path.exists(path)


def complete(path: str) -> list[str]:
    """Complete the write of a journal whose writer is gone; wait for one that is still there.

    Returns:
        The files that were brought to their new content; none where nothing was to be done.

    Raises:
        ForeignJournal: it is of another user or another folder; nothing is written.
        Interrupted: a file was changed by someone else since, or cannot be written.
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
        written = _roll_forward(path, entries)
        os.unlink(path)
        return written


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
    """What the file holds; None where that can be neither the old nor the new content."""
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
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _wait(path: str, descriptor: int) -> None:
    """Wait for the writer of a journal. Raises Interrupted where it takes too long."""
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
    """An open journal; None where it is gone by now.

    Raises:
        ForeignJournal: it is a link, no file, or one of another user.
    """
    try:
        descriptor = os.open(path, mode | sum(getattr(os, name, 0) for name in _FLAGS))
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        why = "is a link" if error.errno == errno.ELOOP else f"cannot be opened ({error.strerror})"
        raise _foreign(path, why) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _foreign(path, "is no regular file")
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            raise _foreign(path, "belongs to another user")
        yield descriptor
    finally:
        os.close(descriptor)


def _check_own(path: str, descriptor: int) -> None:
    """Refuse the journal of another folder.

    Raises:
        ForeignJournal: it is one, or says nothing of where it is from.
        Interrupted: it is of this folder, and of a version that is not known.
    """
    line = os.read(descriptor, _HEADER).split(b"\n", 1)[0]
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        header = json.loads(line)
        known = {name: header[name] for name in ("folder", "device", "inode")}
        version = header["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _foreign(path, "is no journal that this version can read") from error
    if known != _identity(os.path.dirname(os.path.realpath(path))):
        raise _foreign(path, "is of another folder, of which this is a copy")
    if version != _VERSION:
        raise _unknown(path)


def _foreign(path: str, why: str) -> ForeignJournal:
    return ForeignJournal(
        f"{path}: warning: this journal of an interrupted write {why}, so that it is not "
        "completed; see that the files are as they should be, and remove it"
    )


def _unknown(path: str) -> Interrupted:
    return Interrupted(
        f"{path} is no journal that this version can read; the version that wrote it can "
        "complete its work"
    )


def _identity(folder: str) -> dict[str, Any]:
    """What tells a folder from its copies."""
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
        raise _unknown(path) from error


def _resolve(path: str, folder: str, name: str) -> str:
    """The file of a name in a journal. No link leads to it, and it lies below the folder.

    Raises:
        Interrupted: it is not so.
    """
    target = os.path.join(folder, name)
    if os.path.isabs(name) or os.path.realpath(target) != target:
        raise Interrupted(
            f"an interrupted run of fsdplint cannot be completed: {target} lies behind a link or "
            f"outside of {folder}; remove {path} to leave the files as they are"
        )
    return target
