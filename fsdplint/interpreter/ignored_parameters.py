"""The parameters that a sharding leaves whole on each rank, because it gets them as ignored."""

from __future__ import annotations

from collections.abc import Mapping

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import ModuleValue, Sequence, Unknown, Value

_NAMES = ("ignored_modules", "ignored_params", "ignored_states")


def owners_of_ignored(run: Run, value: Value | None) -> tuple[list[ModuleValue], bool]:
    """The modules of ignored parameters, and whether all of theirs are ignored.

    No module if the value is not fully known.
    """
    value = run.settle(value) if value is not None else Unknown()
    items = [run.settle(item) for item in value.items] if isinstance(value, Sequence) else [value]
    if isinstance(value, Sequence) and value.open:
        return [], False
    found: list[ModuleValue] = []
    every = True
    for item in items:
        if isinstance(item, ModuleValue):
            found.append(item)
            continue
        if not isinstance(item, ParametersOf) or item.filtered_by or item.by_name:
            return [], False
        found.extend(item.modules)
        every = every and not item.element
    return found, every


def ignored_modules(run: Run, options: Mapping[str, Value]) -> tuple[str, ...]:
    """The modules whose parameters a sharding certainly leaves out, all of them."""
    given = [options[name] for name in _NAMES if name in options]
    if len(given) != 1:
        return ()
    owners, every = owners_of_ignored(run, given[0])
    return tuple(owner.id for owner in owners) if every else ()
