"""A folder for the copies and records of one command, gone afterwards unless it is to be kept."""

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
_MARK = ".fsdplint-records"  # in a folder to keep that several nodes use: it is theirs


class WorkplaceError(Exception):
    """The folder cannot be had; the text says why."""


@contextmanager
def workplace(command: str, keep: Path | None, shared: bool = False) -> Iterator[Path]:
    """A new folder for `fsdplint COMMAND`; `keep`, where it is given, stays.

    shared: other nodes use the folder too, and may have begun.

    Raises:
        WorkplaceError: the folder cannot be made, or there is something else in the one to keep.
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
    """Make the folder to keep; nothing is mixed into a folder that holds anything else.

    Raises:
        OSError: it cannot be made.
        WorkplaceError: it is not empty, and no other node has begun in it.
    """
    make_folder(keep)
    # The mark is the first thing that a node puts into it.
    if any(keep.iterdir()) and not (shared and (keep / _MARK).is_file()):
        raise WorkplaceError(f"{keep} is not empty; give --keep a new folder")
    if shared:
        (keep / _MARK).touch()


def _lock(folder: Path) -> int:
    """Mark a folder as in use for as long as this process lives; -1 where that is not possible."""
    if fcntl is None:
        return -1
    part = folder / f"{_LOCK}.part"
    lock = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a file system without locks
        os.close(lock)
        return -1
    part.rename(folder / _LOCK)  # nobody sees it before it is locked
    return lock


def _sweep() -> None:
    """Remove the folders of commands that were killed and could not do it themselves.

    The lock tells, not the number of the process in the name: that may be one of another container,
    or be taken again by now.
    """
    if fcntl is None:
        return
    for path in Path(tempfile.gettempdir()).glob(f"fsdplint-*/{_LOCK}"):
        with contextlib.suppress(OSError):
            if not _is_made_here(path.parent):
                continue
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)


def _is_made_here(folder: Path) -> bool:
    """Whether a folder is one that `workplace` made for this user, and not one of such a name."""
    status = folder.lstat()
    mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
    return mine and private and _NAME.fullmatch(folder.name) is not None
