"""Results of collectives that a program reads before they are there.

`dist.all_reduce(x, async_op=True)` returns at once. Until its handle was waited for, the tensor has
the old elements, or some of the new ones.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.rank_local import STRUCTURE
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Sequence, Value, constant
from fsdplint.trace import AsyncResultRead, Collective

# The position of `async_op`, where the first argument gets the result.
_POSITIONS = {
    "all_reduce": 3,
    "broadcast": 3,
    "all_gather": 3,
    "all_gather_into_tensor": 3,
    "reduce_scatter": 4,
    "reduce_scatter_tensor": 4,
    "all_to_all_single": 5,
}


def note_begun(run: Run, api: str, result: Value, call: Call, event: Collective) -> bool:
    """Note whether a collective may go on after its call."""
    position = _POSITIONS.get(api)
    if position is None or constant(call.arg(position, "async_op")) is not True:
        return False
    parts = result.items if isinstance(result, Sequence) else [result]
    for part in map(run.settle, parts):
        if not isinstance(part, Const):
            run.pending[part] = event
    return True


def note_read(run: Run, name: str, operands: list[Value], node: cst.CSTNode) -> None:
    """Note that an operation reads tensors, of which one may not be there yet."""
    if name in STRUCTURE:
        return
    for operand in map(run.settle, operands):
        begun = run.pending.get(operand)
        if begun is not None and run.may_have_waited_at <= begun.index:
            del run.pending[operand]
            run.emit(AsyncResultRead, node, api=begun.api, begun=begun.index)
