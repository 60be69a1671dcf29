"""The values in lists and dicts, which may contain themselves."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.interpreter.torch_values import PartlyHeld
from fsdplint.interpreter.values import Dict, LazyImport, Sequence, Value


def leaves(value: Value, *, dicts: bool = True) -> Iterator[Value]:
    """The values in a list or dict and in those in it; the value itself if it is neither.

    dicts: whether to look into dicts.
    """
    stack = [value]
    seen: set[int] = set()
    while stack:
        one = stack.pop()
        if isinstance(one, LazyImport):
            one = one.value or one
        if isinstance(one, PartlyHeld):
            one = one.held or one
        if not isinstance(one, Sequence) and not (dicts and isinstance(one, Dict)):
            yield one
        elif id(one) not in seen:
            seen.add(id(one))
            stack += one.items.values() if isinstance(one, Dict) else one.items
