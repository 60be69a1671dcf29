"""State dicts that the code after a call may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from fsdplint.interpreter.frames import Call, Frame
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.saved_contents import contents
from fsdplint.interpreter.torch_values import StateValue
from fsdplint.interpreter.values import Dict, Instance, Scope, Value
from fsdplint.source.positions import descend
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around


def states_read_later(run: Run, call: Call, states: Iterable[str]) -> tuple[str, ...]:
    """Those of some states that the program may read after a call.

    Only variables of the calling function are followed: a state in an object, or in a variable of
    another function, may be read by other code, and so may all states in a loop.
    """
    frame = run.frames[-1]
    if run.loop_depth > frame.loop_depth:
        return tuple(states)
    return tuple(one for one in states if _may_be_read(run, call, frame, one))


def _may_be_read(run: Run, call: Call, frame: Frame, state: str) -> bool:
    if any(_holders(run, one.scope, state) for one in run.frames[:-1] if one is not frame):
        return True
    if isinstance(frame.receiver, Instance) and _holds(run, frame.receiver, state):
        return True
    holders = _holders(run, frame.scope, state)
    return any(
        not _reads_other_entry(run, holders, state, run.source, node)
        for node in _later_names(run.source, call.node)
        if node.value in holders
    )


def _holders(run: Run, scope: Scope, state: str) -> dict[str, Value]:
    """The variables of a scope that hold a state."""
    return {name: value for name, value in scope.names.items() if _holds(run, value, state)}


def _holds(run: Run, value: Value, state: str) -> bool:
    value = run.settle(value)
    parts = value.attributes.values() if isinstance(value, Instance) else [value]
    return any(
        isinstance(one, StateValue) and one.id == state
        for part in parts
        for one in contents(run, part)
    )


def _later_names(source: Source, call: cst.CSTNode) -> Iterator[cst.Name]:
    """The names after a call in its function, and all names in functions inside of this one."""
    function, end = function_around(source, call), source.span(call)[1]
    for node in descend(function):
        if not isinstance(node, cst.Name):
            continue
        elsewhere = function_around(source, node) is not function
        if elsewhere or source.span(node)[0] >= end:
            yield node


def _reads_other_entry(
    run: Run, holders: dict[str, Value], state: str, source: Source, name: cst.Name
) -> bool:
    """Whether a name is that of a dict of which the program reads an entry without the state."""
    held, around = run.settle(holders[name.value]), source.parent(name)
    if not isinstance(held, Dict) or not isinstance(around, cst.Subscript):
        return False
    if around.value is not name or len(around.slice) != 1:
        return False
    index = around.slice[0].slice
    key = index.value if isinstance(index, cst.Index) else None
    if not isinstance(key, cst.SimpleString) or key.evaluated_value not in held.items:
        return False
    return not _holds(run, held.items[key.evaluated_value], state)
