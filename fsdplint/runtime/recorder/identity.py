"""A map from objects to values, by identity, that keeps no object alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class IdentityMap(Generic[V]):
    """A WeakKeyDictionary by identity: tensors and the user's classes may define `==`."""

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


class Owners:
    """Maps parameters to their modules, also after sharding has replaced the parameters.

    It holds no weak references to parameters: torch refuses to swap a tensor that has any, which it
    does when a sharded model is moved. A replaced parameter is recognized by its id and its shape,
    so that a later tensor at the same address is not mistaken for it.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], tuple[int, ...]]] = {}

    def set(self, parameter: Any, module: Any) -> None:
        self._entries[id(parameter)] = (weakref.ref(module), tuple(parameter.shape))

    def register(self, parameter: Any, module: Any) -> None:
        """Like `set`, but a parameter that another module still holds keeps that owner."""
        entry = self._entries.get(id(parameter))
        other = entry[0]() if entry is not None else None
        if other is None or not any(own is parameter for own in other._parameters.values()):
            self.set(parameter, module)

    def get(self, parameter: Any) -> Any | None:
        """The owner of a parameter; None if it is unknown."""
        entry = self._entries.get(id(parameter))
        module = entry[0]() if entry is not None else None
        if entry is None or module is None:
            return None
        if any(own is parameter for own in module._parameters.values()):
            return module
        return module if tuple(parameter.shape) == entry[1] else None

    def clear(self) -> None:
        self._entries.clear()
