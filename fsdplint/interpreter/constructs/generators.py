"""`yield`: the values that a generator function gives, one after the other."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.dispatch import evaluates
from fsdplint.interpreter.frames import Frame
from fsdplint.interpreter.iteration import covers, visit
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
        frame.on_yield(value)
        return
    outside = {id(entry) for entry in frame.guards_outside}
    varies = any(
        entry.guard.kind is GuardKind.VARYING and id(entry) not in outside for entry in run.guards
    )
    frame.yields_open = frame.yields_open or varies or run.loop_depth > frame.loop_depth
    frame.yields.append(value)
