"""libcst, imported in half the time.

libcst has two hundred kinds of nodes, which are frozen dataclasses. Most of the time of its import
goes into methods that it generates for each kind: some it replaces (`__eq__`, `__repr__`), and
others only refuse an assignment. Here the nodes have none of these methods, and three checks are
missing:

- An assignment to a field of a node is not refused.
- The bases are no abstract classes, because an `isinstance` of an abstract class takes five times
  as long. So an instance of a base is not refused.
- The fields of a new node are not validated. This check takes a tenth of the time of parsing.

Everything else is as in libcst. If another module has imported libcst before, this module returns
it unchanged, so the first modules of fsdplint import libcst from here.
"""

from __future__ import annotations

import builtins
import dataclasses
import sys
from abc import ABC
from collections.abc import Callable
from typing import Any

_NODES = "libcst._nodes."


def _quick(cls: type | None = None, /, **options: Any) -> Any:
    """`dataclasses.dataclass`, except for the kinds of nodes."""

    def make(one: type) -> type:
        if not one.__module__.startswith(_NODES) or options != {"frozen": True}:
            return _dataclass(one, **options)
        own = one.__dict__
        if "__post_init__" in own:
            type.__delattr__(one, "__post_init__")  # it validates, what was parsed as well
        if "__hash__" in own and own["__hash__"].__qualname__ == "CSTNode.__hash__":
            type.__setattr__(one, "__hash__", object.__hash__)  # the same, in C
        return _dataclass(one, eq=False, repr=False)

    return make if cls is None else make(cls)


def _build(body: Callable[[], object], name: str, *bases: Any, **options: Any) -> Any:
    """What `class` does, except that the kinds of nodes are plain classes."""
    if ABC in bases and body.__globals__.get("__name__", "").startswith(_NODES):
        bases = tuple(base for base in bases if base is not ABC)
    return _build_class(body, name, *bases, **options)


_dataclass: Any = dataclasses.dataclass
_build_class: Any = builtins.__build_class__
if "libcst" not in sys.modules:
    dataclasses.dataclass = _quick
    setattr(builtins, "__build_class__", _build)  # noqa: B010 (its type says more than is needed)
try:
    import libcst as cst
    from libcst._nodes.internal import CodegenState
finally:
    dataclasses.dataclass = _dataclass
    setattr(builtins, "__build_class__", _build_class)  # noqa: B010

__all__ = ["CodegenState", "cst"]
