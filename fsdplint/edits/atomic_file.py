"""Replace the content of a file in a single step.

The new content is written to a temporary file in the same folder, which then replaces the old file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
import time
from pathlib import Path

SUFFIX = ".fsdplint-new"  # suffix of temporary files
LEFTOVER_AGE = 600.0  # seconds after which no run still writes a temporary file
_OPEN = ("/dev/", "/proc/")  # names of open files, such as standard output
_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EBUSY)  # the file cannot be replaced


def replace_content(target: str, content: bytes) -> None:
    """Replace the content of one file, or create it, in a single step. Raises OSError."""
    temporary = temporary_file(target, content)
    try:
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(target))


def save(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a report or similar file in a single step, so that a full disk loses no content.

    A device or pipe is written directly. So is a file that cannot be replaced, because its folder
    is read-only or the file is a mount point.

    Raises:
        OSError: the file cannot be written, or it is a named pipe without a reader.
    """
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) or is_open_name(path):
            is_pipe = stat.S_ISFIFO(mode) and not is_open_name(path)
            with open(_open_pipe(path) if is_pipe else path, "wb") as stream:
                stream.write(content)
            return
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    target = os.path.realpath(path)
    try:
        replace_content(target, content)
    except OSError as error:
        if error.errno not in _IN_PLACE or not os.path.exists(target):
            raise
        Path(target).write_bytes(content)
    _remove_leftovers(target)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents if they do not exist. Raises OSError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        why = os.strerror(errno.ENOTDIR)
        raise NotADirectoryError(errno.ENOTDIR, why, str(folder)) from error


def _open_pipe(path: str | os.PathLike[str]) -> int:
    """Open a named pipe for writing. A pipe without a reader would block forever, so it is refused.
    Raises OSError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.ENXIO, "no program reads this named pipe", str(path)) from error
    os.set_blocking(descriptor, True)
    return descriptor


def is_open_name(path: str | os.PathLike[str]) -> bool:
    """Whether a path names an open file, as /dev/stdout does."""
    return os.path.abspath(path).startswith(_OPEN)


def temporary_file(target: str, content: bytes) -> str:
    """Write the content to a new file beside the target and sync it; returns its path.

    The file gets the target's mode, or that of a new file if there is no target.
    """
    folder, name = os.path.split(target)
    try:
        before = os.stat(target)
    except FileNotFoundError:
        before = None
    descriptor, temporary = tempfile.mkstemp(prefix=_prefix(name), suffix=SUFFIX, dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            if before is not None and hasattr(os, "chown"):
                # Only root can change the owner; other users already own their files.
                with contextlib.suppress(OSError):
                    os.chown(temporary, before.st_uid, before.st_gid)
            os.chmod(temporary, _new_mode() if before is None else stat.S_IMODE(before.st_mode))
            os.fsync(stream.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return temporary


def _new_mode() -> int:
    """The mode of a new file."""
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def remove_temporary_files(target: str) -> None:
    """Remove the temporary files that an interrupted write left beside a file."""
    folder, name = os.path.split(target)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.name.startswith(_prefix(name)) and entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def _remove_leftovers(target: str) -> None:
    """Remove what earlier runs left beside a report because they were killed.

    A file that was just written may belong to a run that is at work.
    """
    folder, name = os.path.split(target)
    pattern = re.compile(rf"{re.escape(_prefix(name))}\w+{re.escape(SUFFIX)}")
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in list(entries):
            if pattern.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat().st_mtime > LEFTOVER_AGE:
                        os.unlink(entry.path)


def _prefix(name: str) -> str:
    """The prefix of the names of a file's temporary files."""
    return f".{name[:100]}."


def sync_folder(folder: str) -> None:
    """Sync the directory entries of a folder to disk, on systems that support it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
