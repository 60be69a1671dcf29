"""Entries that a program sets in a dict of which nothing else is known, or removes from it.

The entries are in the `parts` of the dict: under `[key]` for a subscript, and under `[key]=` for
the methods, for which an entry that the program has only read may be missing.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import replace

from fsdplint.interpreter.branch_sides import note_write
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Dict, Unknown, Value

_END = "]="
_REMOVED = object()  # the value of the constant that stands for an entry that was removed
_MAX_DEPTH = 4  # of dicts in dicts


def set_entry(run: Run, container: Unknown, key: object, value: Value) -> None:
    """Note that a dict has a value under a key."""
    container.parts[f"[{key!r}]"] = value
    _note(run, container, key, value)


def remove_entry(run: Run, container: Unknown, key: object) -> None:
    """Note that a dict has nothing under a key."""
    container.parts.pop(f"[{key!r}]", None)
    _note(run, container, key, Const(_REMOVED))


def has_entry(container: Unknown, key: object) -> bool | None:
    """Whether a dict has a key; None if that is unknown."""
    known = container.parts.get(_name(key))
    return None if known is None or isinstance(known, Unknown) else not _is_removed(known)


def known_elements(container: Unknown) -> Iterator[tuple[object, Value]]:
    """The known elements of a mapping, by key."""
    for name, part in container.parts.items():
        if name.startswith("[") and name != "[]":
            with contextlib.suppress(ValueError, SyntaxError):  # a key that is no plain constant
                yield ast.literal_eval(name[1:-1]), part


def copy_of(value: Unknown, depth: int = 0) -> Unknown:
    """A copy of a value: what the program has set in it is in the copy, too.

    Nothing that is set in the copy later, or in a dict in it, is set in the original.
    """
    made = Unknown(origin=value.origin, varying=value.varying)
    entries: dict[int, Unknown] = {}  # one entry may be there under two names
    for name, part in value.parts.items():
        if isinstance(part, Const) or (name.startswith("[") and _is_read_elsewhere(part)):
            made.parts[name] = part
        elif name.startswith("[") and isinstance(part, Unknown) and _is_data(part):
            if id(part) not in entries:
                inner = copy_of(part, depth + 1).parts if depth < _MAX_DEPTH else {}
                entries[id(part)] = replace(part, parts=inner)
            made.parts[name] = entries[id(part)]
    return made


def call_method(run: Run, container: Value | None, name: str, call: Call) -> Value | None:
    """The result of a method of a dict for an entry that the program has set or removed.

    None if the entry is unknown, also for the methods that change the dict.
    """
    if not isinstance(container, Unknown) or call.open:
        return None
    if name in ("update", "setdefault"):
        _update(run, container, call)
    if name == "copy" and not call.values and any(one.endswith(_END) for one in container.parts):
        return copy_of(container)
    key = run.settle(call.args[0]) if call.args else None
    if name not in ("get", "pop") or not isinstance(key, Const) or not isinstance(key.value, str):
        return None
    known = container.parts.get(_name(key.value))
    if name == "pop":
        remove_entry(run, container, key.value)
    if known is None or not _is_removed(known):
        return known
    default = call.arg(1, "default")
    return Const(None) if default is None and name == "get" else default


def _update(run: Run, container: Unknown, call: Call) -> None:
    """Note the entries of other dicts; one that is not known may have any key."""
    given = [run.settle(value) for value in call.args]
    dicts = [value for value in given if isinstance(value, Dict) and not value.open]
    if len(dicts) < len(given):
        for name in [name for name in container.parts if name.endswith(_END)]:
            note_write(run, container.parts, name, container.parts.pop(name))
    entries = [item for value in dicts for item in value.items.items()]
    for key, value in [*entries, *call.kwargs.items()]:
        if isinstance(key, str):
            set_entry(run, container, key, value)


def _name(key: object) -> str:
    return f"[{key!r}{_END}"


def _note(run: Run, container: Unknown, key: object, value: Value) -> None:
    if container.varying:  # it may be another dict in the next turn of a loop
        return
    name = _name(key)
    note_write(run, container.parts, name, container.parts.get(name))
    container.parts[name] = value


def _is_data(part: Unknown) -> bool:
    """Whether a value is no module, as far as is known, and no part of one."""
    return part.part_of is None and part.refined is None


def _is_read_elsewhere(part: Value) -> bool:
    """Whether an entry is an attribute of another value, such as an option (`args.engine`)."""
    return isinstance(part, Unknown) and part.owner is not None and _is_data(part)


def _is_removed(value: Value) -> bool:
    return isinstance(value, Const) and value.value is _REMOVED
