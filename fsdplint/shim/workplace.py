"""A folder for the copies and records of one command, gone afterwards unless it is to be kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LOCK = ".in-use"


class WorkplaceError(Exception):
    """The folder cannot be had; the text says why."""


@contextmanager
def workplace(command: str, keep: Path | None, shared: bool = False) -> Iterator[Path]:
    """A new folder for `fsdplint COMMAND`; `keep`, where it is given, stays.

    shared: other nodes use the folder too, and may have begun.

    Raises:
        WorkplaceError: the folder cannot be made, or the one to keep is not empty.
    """
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkplaceError(f"cannot make {keep}: {error}") from error
        if not shared and any(keep.iterdir()):
            raise WorkplaceError(f"{keep} is not empty; give --keep a new folder")
        yield keep.resolve()
        return
    _sweep()
    lock = -1
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"fsdplint-{command}-{os.getpid()}-")).resolve()
        lock = _locked(folder)
    except OSError as error:
        raise WorkplaceError(f"cannot make a temporary folder: {error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def _locked(folder: Path) -> int:
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
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)
