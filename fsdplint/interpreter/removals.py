"""Elements that leave a list, a set or a dict."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_entries import remove_entry
from fsdplint.interpreter.values import Const, Dict, Sequence, Unknown, Value


def forget_items(container: Sequence | Dict) -> None:
    """Note that any element may have been removed, so that none is known."""
    container.items.clear()
    container.open = True
    if isinstance(container, Sequence):
        container.length = None
    else:
        container.names_of = None


def note_removal(run: Run, container: Value, key: Value) -> None:
    """Note that a dict has nothing under a key from now on.

    In a loop it may be another dict in each turn.
    """
    if not isinstance(key, Const):
        return
    if isinstance(container, Dict) and not run.loop_depth:
        container.removed.add(key.value)
    elif isinstance(container, Unknown):
        remove_entry(run, container, key.value)


def remove_item(container: Value, key: Value | None) -> Value | None:
    """Remove the element at an index or key; return it, or None if it is not known."""
    if isinstance(container, Sequence):
        return _remove_at(container, key)
    if not isinstance(container, Dict):
        return None
    if isinstance(key, Const):
        container.names_of = None
        return container.items.pop(key.value, None)
    forget_items(container)
    return None


def _remove_at(sequence: Sequence, key: Value | None) -> Value | None:
    index = key.value if isinstance(key, Const) else None
    if isinstance(index, int) and -len(sequence.items) <= index < len(sequence.items):
        if index >= 0 or not sequence.open:
            sequence.length = None
            return sequence.items.pop(index)
    forget_items(sequence)
    return None
