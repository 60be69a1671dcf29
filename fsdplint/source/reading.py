"""The content of files: of regular files only, and never more than a bound.

The type and size of a file are checked before anything is read. A device or pipe may have no end,
or block its reader, and the system reports size 0 for files under /proc.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

MAX_BYTES = 100 * 1024 * 1024  # of any file: notebooks with pictures, baselines
MAX_SETTINGS_BYTES = 2 * 1024 * 1024  # of a file that a person writes and that is no program

_CHUNK = 1024 * 1024
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
# A pipe is never waited for, and a terminal does not become the one that controls this process.
_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
)


class NotRegular(OSError):
    """A path is no regular file; `strerror` says what it is."""


class TooLarge(OSError):
    """A file holds more than the bound.

    Attributes:
        size: its size, or the part that was read.
        limit: the bound.
    """

    def __init__(self, path: str, size: int, limit: int) -> None:
        super().__init__(errno.EFBIG, f"larger than {limit:,} bytes", path)
        self.size = size
        self.limit = limit


def read(path: str | Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a file.

    Raises:
        NotRegular: it is a device, a pipe, a socket or a folder.
        TooLarge: it holds more than `limit` bytes.
        OSError: it cannot be read.
    """
    name = os.fspath(path)
    _refuse(name, os.stat(name), limit)
    descriptor = os.open(name, _FLAGS)
    try:
        _refuse(name, os.fstat(descriptor), limit)  # the path may lead to another file now
        return _content(descriptor, name, limit)
    finally:
        os.close(descriptor)


def read_text(path: str | Path, limit: int = MAX_SETTINGS_BYTES, errors: str = "strict") -> str:
    """The text of a file in UTF-8 or UTF-16 (by its byte order mark), with LF line ends.

    Raises:
        OSError: see `read`.
        UnicodeDecodeError: it is not UTF-8.
    """
    data = read(path, limit)
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = data.decode("utf-16" if is_utf16 else "utf-8-sig", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_whole(path: str | Path, content: bytes) -> bool:
    """Whether a file holds a content and nothing else. Raises OSError."""
    try:
        return read(path, len(content)) == content
    except TooLarge:
        return False


def _content(descriptor: int, name: str, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size <= limit:
        part = os.read(descriptor, min(_CHUNK, limit + 1 - size))
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise TooLarge(name, size, limit)


def _refuse(name: str, status: os.stat_result, limit: int) -> None:
    """Refuse what is not to be read. Raises NotRegular or TooLarge."""
    if not stat.S_ISREG(status.st_mode):
        kind = next((kind for test, kind in _KINDS if test(status.st_mode)), "no file")
        code = errno.EISDIR if kind == "a folder" else errno.EINVAL
        raise NotRegular(code, f"{kind}, not a regular file", name)
    if status.st_size > limit:
        raise TooLarge(name, status.st_size, limit)
