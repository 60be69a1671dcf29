"""Values that conditions decided: constants, symbols and objects of libraries.

A test of such a value asks for no condition itself. The search tries its other outcome by the
conditions that decided the value.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from fsdplint.interpreter.values import (
    Const,
    Dict,
    LibraryObject,
    Partial,
    Sequence,
    Symbol,
    Value,
)
from fsdplint.trace import Sharded, Wrapped

if TYPE_CHECKING:
    from fsdplint.interpreter.frames import Call
    from fsdplint.interpreter.run import Run

MAX_DECIDING = 6  # conditions that a value is known to depend on
MAX_DEPTH = 3  # of the parts of an option
MAX_PARTS = 16  # of a list
_DECIDED = (Const, Symbol, LibraryObject, Sequence)
_NOTHING = nullcontext()


def with_keys(value: Value, keys: abc.Sequence[str]) -> Value:
    """The value, with the keys of further conditions that decided it before."""
    if not keys or not isinstance(value, _DECIDED):
        return value
    known = tuple(dict.fromkeys((*keys, *value.decided_by)))[-MAX_DECIDING:]
    if isinstance(value, LibraryObject | Sequence):
        value.decided_by = value.decided_by or known
        return value
    if known == value.decided_by:
        return value
    if isinstance(value, Const):
        return replace(value, decided_by=known, copy_of=value.copy_of or value)
    return replace(value, decided_by=known)


def chosen_value(value: Value, keys: abc.Sequence[str], begin: int) -> Value:
    """The value of a conditional expression, with the keys that decided it.

    A dict that the expression made, after the step `begin`, has them at its values. An older dict
    is not changed: other code has it, too.
    """
    if isinstance(value, Dict) and keys and value.made_at > begin:
        for key, item in value.items.items():
            value.items[key] = with_keys(item, keys)
    return with_keys(value, keys)


def try_other_options(run: Run, call: Call) -> None:
    """Have the search try the other options of a call, where conditions decided them."""
    run.decisions.relevant.update(_deciding_options(run, call))


def try_other_shardings(run: Run, call: Call) -> None:
    """Have the search try the other options of a sharding; note what decided them."""
    keys = _deciding_options(run, call)
    run.decisions.relevant.update(keys)
    run.decisions.of_options.update(keys)


def note_decided_units(run: Run, units: Value, begin: int) -> None:
    """A loop has visited some values. begin: the first event in it.

    If it shards them, the search tries the other values, where conditions decided which they are.
    """
    if isinstance(units, Sequence) and units.decided_by:
        if any(isinstance(event, Wrapped | Sharded) for event in run.trace.events[begin:]):
            keys = run.decisions.values_by_key.keys() & set(units.decided_by)
            run.decisions.relevant.update(keys)
            run.decisions.of_options.update(keys)


def note_decided_element(run: Run, container: Sequence) -> None:
    """An element is added at this point: what decided that is part of what decided the list."""
    keys = dict.fromkeys((*container.decided_by, *run.keys_around()))
    container.decided_by = tuple(keys)[-MAX_DECIDING:]


def _deciding_options(run: Run, call: Call) -> set[str]:
    known = run.decisions.values_by_key
    return {key for value in call.values for key in keys_of(value) if key in known}


def keys_of(value: Value, depth: int = 0) -> Iterator[str]:
    """The keys that decided an option, or a part of it, such as a type in a policy."""
    if isinstance(value, _DECIDED):
        yield from value.decided_by
    if depth < MAX_DEPTH:
        for part in _parts(value):
            yield from keys_of(part, depth + 1)


def _parts(value: Value) -> Iterable[Value]:
    if isinstance(value, LibraryObject):
        return value.args.values()
    if isinstance(value, Partial):
        return [*value.args, *value.kwargs.values()]
    return value.items[:MAX_PARTS] if isinstance(value, Sequence) else ()


def assigned_value(run: Run, value: Value) -> Value:
    """A value that is assigned at this point of a function, with what decided that it is."""
    return with_keys(value, run.deciding[run.frames[-1].deciding_outside :])


def deciding(run: Run, keys: abc.Sequence[str]) -> AbstractContextManager[None]:
    """A context whose code is executed because of conditions."""
    return _deciding(run, keys) if keys else _NOTHING


@contextmanager
def _deciding(run: Run, keys: abc.Sequence[str]) -> Iterator[None]:
    before = len(run.deciding)
    run.deciding.extend(keys)
    run.deciding_keys = None
    try:
        yield
    finally:
        del run.deciding[before:]
        run.deciding_keys = None
