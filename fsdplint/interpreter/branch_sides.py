"""The two sides of a branch that both run: on different ranks, or in different turns of a loop.

Each side starts with the names as they were before the branch. What it assigns to a name that no
object of the contract is bound to is undone before the other side runs, and joined with what the
other side assigns. Changes of modules, optimizers and states stay: both sides happen.
"""

from __future__ import annotations

from collections.abc import Callable

from fsdplint.interpreter.merging import matters
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import Signal
from fsdplint.interpreter.values import Const, Value

Side = Callable[[], Signal | None]
Join = Callable[[Value, Value], Value]
Bindings = dict[str, Value]
Changes = dict[tuple[int, str], tuple[Bindings, Value | None, Value | None]]  # (before, after)


def execute_sides(run: Run, one: Side, two: Side, join: Join) -> list[Signal | None]:
    """Execute both sides in order, and bind each name to the join of what they assign."""
    outer = run.writes
    first, changed = _execute(run, one)
    for (_, name), (bindings, before, after) in changed.items():
        if not matters(before) and not matters(after):
            _bind(bindings, name, before)
    second, changed_too = _execute(run, two)
    run.writes = outer
    for key in {**changed, **changed_too}:
        _join(run, key, changed.get(key), changed_too.get(key), (first, second), join)
    return [first, second]


def _execute(run: Run, side: Side) -> tuple[Signal | None, Changes]:
    """Execute a side; return its signal and the names that it assigned."""
    outer, run.writes = run.writes, []
    signal = side()
    writes, run.writes = run.writes or [], outer
    changes: Changes = {}
    for bindings, name, before in writes:
        if (id(bindings), name) not in changes:
            changes[id(bindings), name] = bindings, before, bindings.get(name)
    return signal, changes


def _join(
    run: Run,
    key: tuple[int, str],
    one: tuple[Bindings, Value | None, Value | None] | None,
    two: tuple[Bindings, Value | None, Value | None] | None,
    signals: tuple[Signal | None, Signal | None],
    join: Join,
) -> None:
    change = one or two
    assert change is not None
    bindings, before, _ = change
    note_write(run, bindings, key[1], before)
    left, right = (side[2] if side is not None else before for side in (one, two))
    ended = [signal is not None and signal.kind not in _STAY for signal in signals]
    if ended[0] != ended[1]:
        _bind(bindings, key[1], right if ended[0] else left)
    elif left is None or right is None:
        _bind(bindings, key[1], left or right)
    elif not _same_value(left, right):
        bindings[key[1]] = join(left, right)
    else:
        bindings[key[1]] = left


# Signals after which the code behind the loop still runs.
_STAY = {"break", "continue"}


def note_write(run: Run, bindings: Bindings, name: str, before: Value | None) -> None:
    """Record that a name gets another value."""
    if run.writes is not None:
        run.writes.append((bindings, name, before))


def _bind(bindings: Bindings, name: str, value: Value | None) -> None:
    if value is None:
        bindings.pop(name, None)
    else:
        bindings[name] = value


def _same_value(one: Value, two: Value) -> bool:
    if isinstance(one, Const) and isinstance(two, Const):
        return type(one.value) is type(two.value) and bool(one.value == two.value)
    return one is two
