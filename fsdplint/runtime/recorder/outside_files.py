"""The files that a program writes outside of its copy; they are not compared."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fsdplint.runtime.recorder.recorder import Recorder

# The most files that are recorded.
_MOST = 50
_SYSTEM = ("/dev/", "/proc/", "/sys/", "/run/")


class OutsideFiles:
    """Records the files, each once."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._written: set[str] = set()

    def note(self, path: str) -> None:
        """Record a file that the program writes, if it is outside of its copy."""
        known = path in self._written or len(self._written) >= _MOST
        if not known and self._is_outside(path):
            self._written.add(path)
            self._recorder.write({"t": "wrote", "path": path})

    def _is_outside(self, path: str) -> bool:
        """Whether a file is outside of the copy and the record, and not a cache of a library."""
        if self._recorder.folder is None or path.startswith(_SYSTEM):
            return False
        run = os.path.dirname(os.path.realpath(self._recorder.folder))
        if any(_is_below(path, folder) for folder in (run, sys.prefix, sys.base_prefix)):
            return False
        parts = Path(path).parts
        cached = any(part.startswith((".", "__pycache__", "torchinductor_")) for part in parts)
        return not cached


def _is_below(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(folder.rstrip(os.sep) + os.sep)
