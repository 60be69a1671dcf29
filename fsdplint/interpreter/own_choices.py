"""What each rank takes in turns of its own: `[row for i, row in enumerate(rows) if i % n == rank]`.

The ranks have other elements then. Modules and parameters stay as they are: they are no data.
"""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter.rank_local import own_data
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.values import Const, Sequence, Unknown, Value
from fsdplint.source.source import NodeSite
from fsdplint.trace import Guard, GuardKind

_MAX_DEPTH = 2  # of lists in others


def is_own_turn(guard: Guard) -> bool:
    """Whether a test of the rank gives each rank turns of its own."""
    return guard.kind is GuardKind.RANK and guard.ranks.partial and guard.loop is not None


def taken_here(run: Run, value: Value) -> Value:
    """What a rank has of a value, if each rank comes here in turns of its own."""
    tests = [entry.guard for entry in run.guards if is_own_turn(entry.guard)]
    return taken(run, tests[-1].site, value) if tests else value


def taken(run: Run, test: object, value: Value, depth: int = 0) -> Value:
    """What a rank has of a value that each rank takes by a test of its own."""
    value = run.settle(value)
    if not isinstance(test, NodeSite) or run.decisions.single_rank:
        return value
    if isinstance(value, Const) and type(value.value) in (int, str):
        own = own_data(run, test, immutable=True, part=True, position=True)
        return Unknown(varying=True, rank_local=own)
    if type(value) in (Unknown, TensorValue) and isinstance(value, Unknown | TensorValue):
        known = value.rank_local is not None or (isinstance(value, Unknown) and value.part_of)
        own = own_data(run, test, part=True)
        return value if known else replace(value, rank_local=own)
    if isinstance(value, Sequence) and depth < _MAX_DEPTH:
        return replace(value, items=[taken(run, test, one, depth + 1) for one in value.items])
    return value
