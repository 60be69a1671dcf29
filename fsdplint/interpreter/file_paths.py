"""The paths of files: which file it is, and whether it differs between ranks."""

from __future__ import annotations

import re

from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.values import Const, Unknown, Value

# What gives the same file another type.
_SAME_PATH = re.compile(r"(?:pathlib\.Path|os\.fspath|str)\(([^(),]*|[^(),]*\([^()]*\)[^(),]*)\)")
_BUFFERS = {"io.BytesIO", "tempfile.SpooledTemporaryFile", "tempfile.TemporaryFile"}


def may_depend_on_rank(path: Value) -> bool:
    """Whether a path differs, or may differ, between ranks."""
    if isinstance(path, Unknown):
        return path.by_rank or path.by_process or (not path.origin and not path.varying)
    return depends_on_rank(path) or not isinstance(path, Const)


def is_buffer(file: Value) -> bool:
    """Whether a file is one that only the process has that opens it."""
    return isinstance(file, Unknown) and file.library in _BUFFERS


def is_of_process(file: Value) -> bool:
    """Whether each process certainly has a file of its own, in a buffer or under another name."""
    if local_of(file) is not None or is_buffer(file):
        return True
    return isinstance(file, Unknown) and file.library.startswith(("tempfile.", "uuid."))


def path_pattern(path: Value) -> str:
    """The constant of a path, or the code that computes it; "" if it may be any file."""
    if isinstance(path, Const):
        return str(path.value)
    origin = path.origin if isinstance(path, Unknown) and not path.varying else ""
    while (found := _SAME_PATH.fullmatch(origin)) is not None:
        origin = found[1]
    return origin
