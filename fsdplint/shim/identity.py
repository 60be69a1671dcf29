"""A map from objects to values, by identity, that keeps no object alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class IdentityMap(Generic[V]):
    """Like WeakKeyDictionary, but by identity: tensors and the user's classes may define `==`."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], V]] = {}

    def get(self, key: Any) -> V | None:
        entry = self._entries.get(id(key))
        if entry is None or entry[0]() is not key:
            return None
        return entry[1]

    def set(self, key: Any, value: V) -> None:
        number = id(key)
        entries = self._entries

        def forget(ref: weakref.ref[Any]) -> None:
            entry = entries.get(number)
            if entry is not None and entry[0] is ref:
                del entries[number]

        entries[number] = (weakref.ref(key, forget), value)

    def items(self) -> Iterator[tuple[Any, V]]:
        for ref, value in list(self._entries.values()):
            key = ref()
            if key is not None:
                yield key, value

    def clear(self) -> None:
        self._entries.clear()
