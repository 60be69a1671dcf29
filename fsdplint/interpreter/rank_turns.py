"""Loops of which the ranks make different numbers of turns, by a test of the rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.interpreter.branch_conditions import rank_guard
from fsdplint.interpreter.models.data import loader_in
from fsdplint.interpreter.torch_values import RankChoice, RankSide
from fsdplint.interpreter.values import Lazy, Sequence, Value, is_none
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


def guard_of(run: Run, side: RankSide) -> Guard | None:
    """The condition under which only these ranks run; None if its place is not known."""
    place = side.test.created_at
    if place is None or not isinstance(place.node, cst.BaseExpression):
        return None
    return replace(rank_guard(run, place.node, side.test, side.holds), site=place)
