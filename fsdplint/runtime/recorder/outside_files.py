"""The files that a program writes outside of its copy: the user's own, which are not compared."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from fsdplint.runtime.recorder.recorder import RECORDER

# More of them are not named.
_MOST = 50
_SYSTEM = ("/dev/", "/proc/", "/sys/", "/run/")
_written: set[str] = set()
_installed = False


def install() -> None:
    """Note each file that this process opens for writing, from now on.

    Python cannot remove an audit hook: it is installed once, and idle while nothing is recorded.
    """
    global _installed
    _written.clear()
    if not _installed:
        _installed = True
        sys.addaudithook(_audited)


def note(path: str) -> None:
    """Write down that the program writes a file, once, where it lies outside of its copy."""
    if path in _written or len(_written) >= _MOST or not _is_outside(path):
        return
    _written.add(path)
    RECORDER.write({"t": "wrote", "path": path})


def _audited(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not RECORDER.on:
        return
    path, mode, flags = args
    writes = flags & (os.O_WRONLY | os.O_RDWR) if mode is None else set(mode) & set("wax+")
    if writes and isinstance(path, (str, bytes)):
        try:
            note(os.path.abspath(os.fsdecode(path)))
        except Exception:
            RECORDER.trouble()


def _is_outside(path: str) -> bool:
    """Whether a file is none of the copy's or record's, and no cache of a library."""
    if RECORDER.folder is None or path.startswith(_SYSTEM):
        return False
    run = os.path.dirname(os.path.realpath(RECORDER.folder))
    if any(_is_below(path, folder) for folder in (run, sys.prefix, sys.base_prefix)):
        return False
    parts = Path(path).parts
    cached = any(part.startswith((".", "__pycache__", "torchinductor_")) for part in parts)
    return not cached


def _is_below(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(folder.rstrip(os.sep) + os.sep)
