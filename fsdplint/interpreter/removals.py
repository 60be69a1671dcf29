"""Elements that leave a list, a set or a dict."""

from __future__ import annotations

from fsdplint.interpreter.values import Const, Dict, Sequence, Value


def forget_items(container: Sequence | Dict) -> None:
    """Note that any element may have been removed, so that none is known."""
    container.items.clear()
    container.open = True


def remove_item(container: Value, key: Value | None) -> Value | None:
    """Remove the element at an index or key; return it, or None if it is not known."""
    if isinstance(container, Sequence):
        return _remove_at(container, key)
    if not isinstance(container, Dict):
        return None
    if isinstance(key, Const):
        return container.items.pop(key.value, None)
    forget_items(container)
    return None


def _remove_at(sequence: Sequence, key: Value | None) -> Value | None:
    index = key.value if isinstance(key, Const) else None
    if isinstance(index, int) and -len(sequence.items) <= index < len(sequence.items):
        if index >= 0 or not sequence.open:
            return sequence.items.pop(index)
    forget_items(sequence)
    return None
