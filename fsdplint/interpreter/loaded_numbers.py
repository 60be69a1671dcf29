"""Numbers in a dict that a distributed checkpoint is loaded into.

`dcp.load(state)` puts the saved number into the dict. A variable from which the dict got its number
keeps the old one.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Dict, Sequence, Unknown, Value
from fsdplint.trace import CounterDropped

_DEPTH = 2  # of dicts in the dict


@dataclass(frozen=True)
class Replaced:
    """An entry of a dict that a load has replaced: `new` instead of a number.

    node: the call of the load. path: that of the checkpoint.
    """

    held_by: Dict
    key: str
    new: Value
    node: cst.CSTNode
    path: str


def note_loaded(run: Run, state: Value, call: Call, path: str, depth: int = 0) -> None:
    """Replace the numbers in a dict that a load has filled."""
    state = run.settle(state)
    if not isinstance(state, Dict) or state.open:
        return
    for key, value in [*state.items.items()]:
        value = run.settle(value)
        if isinstance(value, Dict) and depth < _DEPTH:
            note_loaded(run, value, call, path, depth + 1)
        elif isinstance(key, str) and _is_number(value):
            state.items[key] = new = Unknown(varying=True)
            run.replaced_numbers[_first(value)] = Replaced(state, key, new, call.node, path)


def _is_number(value: Value) -> bool:
    return isinstance(value, Const) and type(value.value) in (int, float)


def _first(value: Value) -> Value:
    return (value.copy_of or value) if isinstance(value, Const) else value


def note_result(run: Run, left: Value, right: Value, result: Value) -> None:
    """`step + 1` is still computed of the old number."""
    for one, other in ((left, right), (right, left)):
        found = run.replaced_numbers.get(_first(one))
        if found is not None and isinstance(other, Const):
            run.replaced_numbers[result] = found


def note_begin(run: Run, number: Value | None) -> None:
    """A loop begins at a number, or counts it up."""
    found = run.replaced_numbers.get(_first(number)) if number is not None else None
    if found is None or found.held_by.open or found.held_by.items.get(found.key) is not found.new:
        return
    if any(_holds(value, found.new) for value in run.evaluations.values()):
        return  # the program reads the new number as well
    if any(e.name == found.key and _is_at(e, found.node) for e in run.trace.of(CounterDropped)):
        return
    run.emit(CounterDropped, found.node, name=found.key, path=found.path, in_dict=True)


def _is_at(event: CounterDropped, node: cst.CSTNode) -> bool:
    return getattr(event.site, "node", None) is node


def _holds(value: Value, number: Value) -> bool:
    return value is number or (isinstance(value, Sequence) and number in value.items)
