"""Calls of a function, or of a method of an object, that a test of the rank chooses.

    logger = Logger() if rank == 0 else NoLogger()
    logger.log(model)

Each side runs on its own ranks.
"""

from __future__ import annotations

from functools import partial

import libcst as cst

from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.branch_sides import execute_sides
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.merging import join_by_rank
from fsdplint.interpreter.rank_turns import guard_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankChoice, RankSide
from fsdplint.interpreter.values import Bound, Function, Instance, Value
from fsdplint.trace import Guard


def chosen_method(run: Run, owner: Value, method: Value, node: cst.Attribute) -> Value:
    """A method of one of two objects, by the choice between these; else the method itself.

    owner: what `run.eval_choice` gives for the object. method: the one of the object it stands for.
    """
    if not isinstance(owner, RankChoice) or not isinstance(method, Bound):
        return method
    sides = [
        read_attribute(run, side, node.attr.value, node)
        for side in (owner.one, owner.two)
        if isinstance(side, Instance)
    ]
    if len(sides) < 2 or not all(isinstance(side, Bound) for side in sides):
        return method
    return RankChoice(held=method, test=owner.test, one=sides[0], two=sides[1], by_rank=True)


def call(run: Run, function: Value, given: Call) -> Value:
    """Call a value; what the rank chooses between two functions runs as each of them."""
    guards = _guards(run, function)
    if guards is None:
        return run.call(function, given)
    assert isinstance(function, RankChoice)
    results: list[Value] = []

    def side(called: Value | None, guard: Guard) -> None:
        assert called is not None
        with run.under_guards([(guard, "")]):
            results.append(run.call(called, given))

    execute_sides(
        run,
        partial(side, function.one, guards[0]),
        partial(side, function.two, guards[1]),
        partial(join_by_rank, function.test),
    )
    return join_by_rank(function.test, *results)


def _guards(run: Run, function: Value) -> list[Guard] | None:
    """The conditions of the two sides of a choice; None for one function, or if one is unknown."""
    if not isinstance(function, RankChoice) or function.test is None or run.ranks().partial:
        return None
    if not all(isinstance(side, Bound | Function) for side in (function.one, function.two)):
        return None
    sides = [guard_of(run, RankSide(function.test, holds)) for holds in (True, False)]
    guards = [guard for guard in sides if guard is not None]
    return guards if len(guards) == 2 else None
