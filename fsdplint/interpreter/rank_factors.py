"""How often a number has the number of ranks as a factor: `1 / (steps * dist.get_world_size())`."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.ranks import WORLD_SIZE, depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Unknown, Value

_DIVIDES = (cst.Divide, cst.DivideAssign)
_MULTIPLIES = (cst.Multiply, cst.MultiplyAssign)


def power_of_ranks(run: Run, value: Value) -> int | None:
    """The power of the number of ranks in a product; None if it may have other ones, too."""
    if isinstance(value, Const):
        return 0
    if not isinstance(value, Unknown) or value in run.rank_powers:
        return run.rank_powers.get(value)
    if value.origin == WORLD_SIZE:
        return 1
    other = value.summed or value.reciprocal or depends_on_rank(value) or local_of(value)
    setting = value.origin and not value.varying and value not in run.computed_of_ranks
    return 0 if setting and not other else None


def note_operation(run: Run, left: Value, op: object, right: Value, result: Value) -> None:
    """Note the power in a new number."""
    if isinstance(result, Const):
        return
    powers = power_of_ranks(run, left), power_of_ranks(run, right)
    if powers == (0, 0):
        return
    run.computed_of_ranks.add(result)
    if None in powers or not isinstance(op, (*_DIVIDES, *_MULTIPLIES)):
        return
    sign = -1 if isinstance(op, _DIVIDES) else 1
    run.rank_powers[result] = (powers[0] or 0) + sign * (powers[1] or 0)
