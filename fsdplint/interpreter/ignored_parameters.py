"""The parameters that a sharding leaves whole on each rank, because it gets them as ignored."""

from __future__ import annotations

from collections.abc import Mapping

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import ModuleValue, Sequence, Unknown, Value
from fsdplint.trace import Event

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
        every = every and (item.stands_for_all or not item.element)
    return found, every


def note_ignored(run: Run, event: Event, options: Mapping[str, Value]) -> None:
    """Note what a sharding leaves out."""
    given = [options[name] for name in _NAMES if name in options]
    if len(given) == 1:
        run.ignored[event.index] = given[0]


def leaves_out(run: Run, event: Event, value: Value) -> bool:
    """Whether a sharding certainly leaves out the very parameters that a value has."""
    given = run.ignored.get(event.index)
    given = run.settle(given) if given is not None else None
    return isinstance(given, Sequence) and any(run.settle(item) is value for item in given.items)


def ignored_modules(run: Run, options: Mapping[str, Value]) -> tuple[str, ...]:
    """The modules whose parameters a sharding certainly leaves out, all of them."""
    given = [options[name] for name in _NAMES if name in options]
    if len(given) != 1:
        return ()
    owners, every = owners_of_ignored(run, given[0])
    return tuple(owner.id for owner in owners) if every else ()
