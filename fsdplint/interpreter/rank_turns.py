"""Loops of which the ranks make different numbers of turns, by a test of the rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.interpreter.branch_conditions import rank_guard
from fsdplint.interpreter.models.data import loader_in
from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.torch_values import RankChoice, RankSide
from fsdplint.interpreter.values import Lazy, Sequence, Unknown, Value, constant, is_none
from fsdplint.trace import Guard

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Run


@dataclass(frozen=True)
class RankTurns:
    """What a loop visits on the ranks that make more turns.

    side: these ranks. all_begin: whether the other ranks make a turn, too.
    """

    visited: Value
    side: RankSide
    all_begin: bool


def turns_by_rank(value: Value) -> RankTurns | None:
    """What some ranks alone visit in a value; None if nothing certain."""
    if isinstance(value, RankChoice):
        return _of_choice(value)
    inner: Value | None = value
    while isinstance(inner, Lazy):
        inner = inner.source
    loader = loader_in(inner) if inner is not None else None
    if loader is None or loader.only_on is None:
        return None
    return RankTurns(value, loader.only_on, all_begin=False)


def _of_choice(value: RankChoice) -> RankTurns | None:
    if value.test is None or value.one is None or value.two is None:
        return None
    one, two = _fewest(value.one), _fewest(value.two)
    if one is None or two is None or one == two:
        return None
    more, fewer = (value.one, value.two) if one > two else (value.two, value.one)
    if isinstance(fewer, Sequence) and fewer.open:
        return None
    return RankTurns(more, RankSide(value.test, one > two), all_begin=min(one, two) > 0)


def _fewest(value: Value) -> int | None:
    """The smallest number of turns of a loop over a value; None if unknown."""
    if is_none(value):
        return 0
    if isinstance(value, Sequence) and value.own_length is None:
        return len(value.items)
    return None


def on_each_side(value: RankChoice, compute: Callable[[Value], Value]) -> RankChoice:
    """What a function makes of the elements of each side; none make none."""
    one, two = (
        compute(side) if side is not None and _fewest(side) != 0 else side
        for side in (value.one, value.two)
    )
    return replace(value, one=one, two=two, parts={})


def range_to(number: RankChoice) -> Value:
    """`range` of a number that the rank chooses: a further turn where it is higher."""
    one, two = constant(number.one), constant(number.two)
    if not isinstance(one, int) or not isinstance(two, int):
        return replace(number, one=None, two=None, parts={})
    common = min(one, two, 1)
    turns = [common + (one > two), common + (two > one)]
    sides = [Sequence([Unknown(varying=True) for _ in range(n)], "list") for n in turns]
    return replace(number, one=sides[0], two=sides[1], parts={})


def range_from(begin: RankChoice) -> Value:
    """`range` from a number that the rank chooses: a further turn where it is lower.

    A number that only some ranks compute, such as the epoch in a checkpoint, counts as higher than
    the constant of the other ranks.
    """
    lower = _holds_where_lower(begin)
    if lower is None:
        return replace(begin, one=None, two=None, parts={})
    turns = [1 + lower, 2 - lower]
    sides = [Sequence([Unknown(varying=True) for _ in range(n)], "list") for n in turns]
    return replace(begin, one=sides[0], two=sides[1], parts={})


def _holds_where_lower(number: RankChoice) -> bool | None:
    """Whether the test holds on the ranks whose number is lower; None if that is not known."""
    one, two = constant(number.one), constant(number.two)
    known = [isinstance(side, int) for side in (one, two)]
    if not any(known) or one == two:
        return None
    return bool(one < two) if all(known) else known[0]


def counting_side(run: Run, test: cst.BaseExpression) -> RankSide | None:
    """The ranks that make further turns of a loop that counts a number up: where it begins lower.

    `while step < total`, `while step != total`, `while total > step`
    """
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    places, op = (test.left, test.comparisons[0].comparator), test.comparisons[0].operator
    if isinstance(op, cst.GreaterThan | cst.GreaterThanEqual):
        places = places[1], places[0]
    elif not isinstance(op, cst.LessThan | cst.LessThanEqual | cst.NotEqual):
        return None
    number, end = (run.settle(run.evaluations.get(place, Unknown())) for place in places)
    if not isinstance(number, RankChoice) or number.agreed or number.test is None:
        return None
    lower = _holds_where_lower(number)
    return None if lower is None or depends_on_rank(end) else RankSide(number.test, lower)


def guard_of(run: Run, side: RankSide) -> Guard | None:
    """The condition under which only these ranks run; None if its place is not known."""
    place = side.test.created_at
    if place is None or not isinstance(place.node, cst.BaseExpression):
        return None
    return replace(rank_guard(run, place.node, side.test, side.holds), site=place)
