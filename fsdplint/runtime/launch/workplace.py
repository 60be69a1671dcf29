"""The folder for the copies and records of one command, removed afterwards unless kept."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsdplint.edits.atomic_file import make_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LOCK = ".in-use"
_NAME = re.compile(r"fsdplint-[a-z]+-\d+-\w+")
_MARK = ".fsdplint-records"  # marks a folder to keep that several nodes share


class WorkplaceError(Exception):
    """The folder cannot be created; the text says why."""


@contextmanager
def workplace(command: str, keep: Path | None, shared: bool = False) -> Iterator[Path]:
    """A new folder for `fsdplint COMMAND`: `keep` if given, else a temporary one.

    shared: whether other nodes use the folder too, and may have created it.

    Raises:
        WorkplaceError: the folder cannot be created, or `keep` is not empty.
    """
    if keep is not None:
        try:
            _prepare(keep, shared)
        except OSError as error:
            raise WorkplaceError(f"cannot make {keep}: {error.strerror or error}") from error
        yield keep.resolve()
        return
    _sweep()
    lock = -1
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"fsdplint-{command}-{os.getpid()}-")).resolve()
        lock = _lock(folder)
    except OSError as error:
        raise WorkplaceError(f"cannot make a temporary folder: {error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def _prepare(keep: Path, shared: bool) -> None:
    """Create the folder to keep.

    Raises:
        OSError: the folder cannot be created.
        WorkplaceError: it is not empty, and no other node has created it.
    """
    make_folder(keep)
    # A node writes the mark before anything else.
    if any(keep.iterdir()) and not (shared and (keep / _MARK).is_file()):
        raise WorkplaceError(f"{keep} is not empty; give --keep a new folder")
    if shared:
        (keep / _MARK).touch()


def _lock(folder: Path) -> int:
    """Lock a folder until this process ends; returns the descriptor, or -1 without locks."""
    if fcntl is None:
        return -1
    part = folder / f"{_LOCK}.part"
    lock = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a file system without locks
        os.close(lock)
        return -1
    part.rename(folder / _LOCK)  # now it is visible, and locked
    return lock


def _sweep() -> None:
    """Remove the folders of commands that were killed.

    The lock decides, not the process id in the name: it may belong to another container or to a
    later process.
    """
    if fcntl is None:
        return
    for path in Path(tempfile.gettempdir()).glob(f"fsdplint-*/{_LOCK}"):
        with contextlib.suppress(OSError):
            if not _is_own_workplace(path.parent):
                continue
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)


def _is_own_workplace(folder: Path) -> bool:
    """Whether `workplace` created a folder for this user; its name alone is not sufficient."""
    status = folder.lstat()
    mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
    return mine and private and _NAME.fullmatch(folder.name) is not None
