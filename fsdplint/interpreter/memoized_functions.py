"""Functions that are executed once: `functools.cache`, `lru_cache` and `cached_property`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fsdplint.interpreter.values import Const, Function, Value

ONCE = {"cache", "lru_cache", "cached_property"}

Key = tuple[object, ...]


class Memory:
    """The results of cached functions, by their arguments."""

    def __init__(self) -> None:
        self._results: dict[Key, Value] = {}
        self._alive: list[Value] = []  # so that no id is reused

    def once(
        self,
        function: Function,
        values: Sequence[Value | None],
        named: Mapping[str, Value],
        execute: Callable[[], Value],
    ) -> Value:
        """The result of a function, which is executed unless it is cached and was called before.

        values: the receiver (None for a function that is no method) and the positional arguments.
        """
        if not function.decorators or ONCE.isdisjoint(function.decorators):
            return execute()
        arguments = [*values, *named.values()]
        key = (id(function), *named, *(_key(value) for value in arguments))
        if key not in self._results:
            self._alive += [value for value in (function, *arguments) if value is not None]
            self._results[key] = execute()
        return self._results[key]


def _key(value: Value | None) -> object:
    return repr(value.value) if isinstance(value, Const) else id(value)
