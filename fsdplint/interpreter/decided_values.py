"""Values that conditions decided: constants, symbols and objects of libraries.

A test of such a value asks for no condition itself. The search tries its other outcome by the
conditions that decided the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from fsdplint.interpreter.values import Const, Dict, LibraryObject, Symbol, Value

if TYPE_CHECKING:
    from fsdplint.interpreter.frames import Call
    from fsdplint.interpreter.run import Run

MAX_DECIDING = 6  # conditions that a value is known to depend on
_DECIDED = (Const, Symbol, LibraryObject)
_NOTHING = nullcontext()


def with_keys(value: Value, keys: Sequence[str]) -> Value:
    """The value, with the keys of further conditions that decided it before."""
    if not keys or not isinstance(value, _DECIDED):
        return value
    known = tuple(dict.fromkeys((*keys, *value.decided_by)))[-MAX_DECIDING:]
    if isinstance(value, LibraryObject):
        value.decided_by = value.decided_by or known
        return value
    return value if known == value.decided_by else replace(value, decided_by=known)


def chosen_value(value: Value, keys: Sequence[str], begin: int) -> Value:
    """The value of a conditional expression, with the keys that decided it.

    A dict that the expression made, after the step `begin`, has them at its values. An older dict
    is not changed: other code has it, too.
    """
    if isinstance(value, Dict) and keys and value.made_at > begin:
        for key, item in value.items.items():
            value.items[key] = with_keys(item, keys)
    return with_keys(value, keys)


def try_other_options(run: Run, call: Call) -> None:
    """Have the search try the other options of a sharding, where conditions decided them."""
    known = run.decisions.values_by_key
    for value in call.values:
        if isinstance(value, _DECIDED):
            run.decisions.relevant.update(key for key in value.decided_by if key in known)


def assigned_value(run: Run, value: Value) -> Value:
    """A value that is assigned at this point of a function, with what decided that it is."""
    return with_keys(value, run.deciding[run.frames[-1].deciding_outside :])


def deciding(run: Run, keys: Sequence[str]) -> AbstractContextManager[None]:
    """A context whose code is executed because of conditions."""
    return _deciding(run, keys) if keys else _NOTHING


@contextmanager
def _deciding(run: Run, keys: Sequence[str]) -> Iterator[None]:
    before = len(run.deciding)
    run.deciding.extend(keys)
    run.deciding_keys = None
    try:
        yield
    finally:
        del run.deciding[before:]
        run.deciding_keys = None
