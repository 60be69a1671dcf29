"""libcst, imported in half the time.

Its two hundred kinds of nodes are frozen dataclasses, and most of the time that importing it takes
goes into methods made for each of them that it either replaces (`__eq__`, `__repr__`) or that only
refuse an assignment. Here nodes are made without these: whoever assigns to a field of a node is not
stopped, and nothing else is different. Where libcst is imported already, it stays as it is.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any


def _quick(cls: type | None = None, /, **options: Any) -> Any:
    """`dataclasses.dataclass`, except for the kinds of nodes."""

    def made(one: type) -> type:
        if not one.__module__.startswith("libcst._nodes.") or options != {"frozen": True}:
            return _dataclass(one, **options)
        own = one.__dict__
        if "__hash__" in own and own["__hash__"].__qualname__ == "CSTNode.__hash__":
            type.__setattr__(one, "__hash__", object.__hash__)  # the same, in C
        return _dataclass(one, eq=False, repr=False)

    return made if cls is None else made(cls)


_dataclass: Any = dataclasses.dataclass
if "libcst" not in sys.modules:
    dataclasses.dataclass = _quick
    try:
        import libcst  # noqa: F401
    finally:
        dataclasses.dataclass = _dataclass
