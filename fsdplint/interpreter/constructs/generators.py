"""`yield`: the values that a generator function gives, one after the other."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.dispatch import evaluates
from fsdplint.interpreter.frames import Frame, GuardEntry
from fsdplint.interpreter.iteration import covers, visit
from fsdplint.interpreter.own_choices import is_own_turn, taken
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Unknown, Value
from fsdplint.trace import GuardKind


@evaluates(cst.Yield)
def eval_yield(run: Run, node: cst.Yield) -> Value:
    frame = run.frames[-1]
    if isinstance(node.value, cst.From):
        iterable = run.eval(node.value.item)
        whole = run.loops[node] = covers(run, iterable)
        exact = visit(run, iterable, lambda element: _give(run, frame, element))
        run.loops[node] = whole or covers(run, iterable)  # what was lazy is known now
        frame.yields_open = frame.yields_open or not exact
    else:
        _give(run, frame, run.eval(node.value) if node.value is not None else Const(None))
    return Unknown()


def _give(run: Run, frame: Frame, value: Value) -> None:
    """Yield a value from the function of a frame."""
    if frame.on_yield is not None:
        turns = [entry for entry in run.guards if _is_own_turn(frame, entry)]
        with run.without_guards(turns):
            frame.on_yield(taken(run, turns[-1].guard.site, value) if turns else value)
        return
    outside = {id(entry) for entry in frame.guards_outside}
    varies = any(
        entry.guard.kind is GuardKind.VARYING and id(entry) not in outside for entry in run.guards
    )
    frame.yields_open = frame.yields_open or varies or run.loop_depth > frame.loop_depth
    frame.yields.append(value)


def _is_own_turn(frame: Frame, entry: GuardEntry) -> bool:
    """Whether each rank takes turns of its own, by a test in a loop of a generator.

    All ranks execute what gets the values: it cannot tell which turns they come from.
    """
    return is_own_turn(entry.guard) and all(entry is not outer for outer in frame.guards_outside)
