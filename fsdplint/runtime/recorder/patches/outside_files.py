"""Notes files that Python opens for writing (`fsdplint.runtime.recorder.outside_files`)."""

from __future__ import annotations

import os
import sys
from typing import Any

from fsdplint.runtime.recorder.recording import current


def install() -> None:
    """Add an audit hook, which Python cannot remove; it is idle while nothing is recorded."""
    sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not current().recorder.on:
        return
    path, mode, flags = args
    writes = flags & (os.O_WRONLY | os.O_RDWR) if mode is None else set(mode) & set("wax+")
    if writes and isinstance(path, (str, bytes)):
        try:
            current().outside_files.note(os.path.abspath(os.fsdecode(path)))
        except Exception:
            current().recorder.record_error()
