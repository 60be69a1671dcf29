"""Records imports of the modules of FSDP, in old and new versions of torch."""

from __future__ import annotations

import builtins
import linecache
import sys
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import USER, kind_of
from fsdplint.syntax.version_guards import is_of_fsdp, optional_lines
from fsdplint.trace import Imported


def install() -> None:
    original = builtins.__import__
    # Names without FSDP: torch repeats hundreds of imports in a training step.
    others: set[str] = set()

    def watched_import(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        recording = current()
        if level or name in others:
            return original(name, globals, locals, fromlist, level)
        if not is_of_fsdp(name):
            others.add(name)
        elif recording.recorder.listening():
            try:
                _record_import(name, fromlist, sys._getframe(1))
            except Exception:
                recording.recorder.record_error()
        return original(name, globals, locals, fromlist, level)

    builtins.__import__ = watched_import


def _record_import(name: str, fromlist: Any, frame: FrameType) -> None:
    """Record an import in the user's code."""
    path = frame.f_code.co_filename
    if kind_of(path) != USER:
        return
    lines = "".join(linecache.getlines(path))
    current().recorder.event(
        Imported,
        frame,
        package=name,
        names=tuple(str(each) for each in fromlist or ()),
        optional=frame.f_lineno in optional_lines(lines),
    )
