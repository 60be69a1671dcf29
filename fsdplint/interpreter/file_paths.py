"""The paths of files: which file it is, and whether it differs between ranks."""

from __future__ import annotations

import re

from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.values import Const, Unknown, Value

# What gives the same file another type.
_SAME_PATH = re.compile(r"(?:pathlib\.Path|os\.fspath|str)\(([^(),]*|[^(),]*\([^()]*\)[^(),]*)\)")


def may_depend_on_rank(path: Value) -> bool:
    """Whether a path differs, or may differ, between ranks."""
    if isinstance(path, Unknown):
        return path.by_rank or path.by_process or (not path.origin and not path.varying)
    return depends_on_rank(path) or not isinstance(path, Const)


def path_pattern(path: Value) -> str:
    """The constant of a path, or the code that computes it; "" if it may be any file."""
    if isinstance(path, Const):
        return str(path.value)
    origin = path.origin if isinstance(path, Unknown) and not path.varying else ""
    while (found := _SAME_PATH.fullmatch(origin)) is not None:
        origin = found[1]
    return origin
