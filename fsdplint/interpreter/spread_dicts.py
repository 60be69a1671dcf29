"""Which keys the dicts have that calls spread, each time that a run evaluates `f(**options)`."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.interpreter.values import Const, Dict, Instance, Namespace, Value


@dataclass(frozen=True)
class SpreadDict:
    """A dict when a call spreads it.

    Attributes:
        keys: its keys.
        none: those of them under which it has None.
    """

    keys: frozenset[str]
    none: frozenset[str]


def spread_dict(value: Value) -> SpreadDict | None:
    """A dict, or the dict of an object's attributes; None if it may have other keys."""
    if isinstance(value, Dict):
        if value.open or value.doubtful or value.tensors:
            return None
        items = value.items
    elif isinstance(value, Namespace) and isinstance(value.owner, Instance):
        if value.owner.attributes_unknown:
            return None
        items = value.owner.attributes
    else:
        return None
    if not all(isinstance(key, str) for key in items):
        return None
    none = (key for key, item in items.items() if isinstance(item, Const) and item.value is None)
    return SpreadDict(frozenset(items), frozenset(none))
