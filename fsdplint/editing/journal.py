"""The journal of a write: what makes several files change together, even if the process is killed.

Before the first file is touched, a journal with the old and the new content of all of them is put
into the project's root. A run that finds one whose writer is gone brings every file to its new
content and removes what was left lying about; if the journal itself was cut short, no file had
been touched yet. The writer holds a lock on its journal, so that nobody takes over from it while
it is at work.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fsdplint.discovery import JOURNAL_PREFIX

try:
    import fcntl
except ImportError:  # no locks: a journal is taken for one of a process that is gone
    fcntl = None  # type: ignore[assignment]

WHOLE, PART = ".json", ".part"
SUFFIX = ".fsdplint-new"  # of the new files that wait beside the old ones
PATIENCE = 10.0  # seconds that another run may take to write


@dataclass(frozen=True)
class Entry:
    """One file of a write: where it really is, what it held, and what it is to hold."""

    target: str
    old: bytes
    new: bytes


class Interrupted(Exception):
    """An interrupted write that cannot be completed; the message says why and what to do."""


@contextlib.contextmanager
def journal(folder: str, entries: Sequence[Entry]) -> Iterator[None]:
    """While the files are written: a journal in a folder. Gone when all is done or undone.

    Raises:
        OSError: it cannot be written; no file may be touched then.
    """
    import tempfile  # a run that writes nothing does not pay for it

    descriptor, part = tempfile.mkstemp(prefix=JOURNAL_PREFIX, suffix=PART, dir=folder)
    whole = part.removesuffix(PART) + WHOLE
    try:
        _lock(descriptor)
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(_encoded(entries))
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


def found(folders: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The journals in some folders."""
    result = []
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            result += sorted(
                entry.path for entry in entries if entry.name.startswith(JOURNAL_PREFIX)
            )
    return result


def complete(path: str) -> list[str]:
    """Complete the write of a journal whose writer is gone; wait for one that is still there.

    Returns:
        The files that were brought to their new content; none where nothing was to be done.

    Raises:
        Interrupted: a file was changed by someone else since, or cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Interrupted(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        if not _free(descriptor):
            raise Interrupted(f"another run of fsdplint is writing files ({path})")
        if not os.path.exists(path):  # its writer has ended in the meantime
            return []
        if path.endswith(PART):
            os.unlink(path)
            return []
        with open(descriptor, "rb", closefd=False) as stream:
            entries = _decoded(path, stream.read())
        written = _roll_forward(path, entries)
        os.unlink(path)
        return written
    finally:
        os.close(descriptor)


def _roll_forward(path: str, entries: Sequence[Entry]) -> list[str]:
    from fsdplint.editing.write import replace_content

    waiting = []
    for entry in entries:
        content = _content(entry.target)
        if content == entry.old:
            waiting.append(entry)
        elif content != entry.new:
            raise Interrupted(
                f"an interrupted run of fsdplint has to be completed, but {entry.target} was "
                f"changed since; put its content back, or remove {path} to leave the files as "
                "they are"
            )
    for entry in entries:
        _remove_leftovers(entry.target)
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


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return None


def _remove_leftovers(target: str) -> None:
    folder, name = os.path.split(target)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.name.startswith(temporary_prefix(name)) and entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def temporary_prefix(name: str) -> str:
    """How the name of a file that waits to take the place of another one begins."""
    return f".{name[:100]}."


def sync_folder(folder: str) -> None:
    """Make the names in a folder last over a power cut, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Locks and format ------------------------------------------------------------------------------


def _lock(descriptor: int) -> None:
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _free(descriptor: int) -> bool:
    """Whether the writer of a journal is gone, or goes while we wait."""
    if fcntl is None:
        return True
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        except OSError:
            return True


def _encoded(entries: Sequence[Entry]) -> bytes:
    files = [
        {
            "path": entry.target,
            "old": base64.b64encode(entry.old).decode(),
            "new": base64.b64encode(entry.new).decode(),
        }
        for entry in entries
    ]
    return json.dumps({"version": 1, "files": files}).encode()


def _decoded(path: str, data: bytes) -> list[Entry]:
    try:
        content = json.loads(data)
        if content["version"] != 1:
            raise ValueError
        return [
            Entry(file["path"], base64.b64decode(file["old"]), base64.b64decode(file["new"]))
            for file in content["files"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise Interrupted(
            f"{path} is no journal that this version can read; the version that wrote it can "
            "complete its work"
        ) from error
