"""Tests of the rank, and of values that the rank has chosen."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from fsdplint.interpreter.torch_values import LoaderValue, RankChoice, RankTest, RankValue
from fsdplint.interpreter.values import Const, Sequence, Unknown, Value
from fsdplint.trace import Ranks

NEGATED = (cst.NotEqual, cst.IsNot, cst.NotIn)


def is_zero(rank: RankValue) -> RankTest:
    """The test whether the rank is 0."""
    return is_number(rank, 0)


def is_number(rank: RankValue, number: int | None) -> RankTest:
    """The test whether the rank is a number; None for a number that is not known."""
    if rank.scope == "global":
        return RankTest(Ranks.ONE, Ranks.OTHERS, number=number)
    return RankTest(Ranks.SOME, Ranks.SOME, each_node=rank.scope == "local", number=number)


def mirror(op: cst.BaseCompOp) -> cst.BaseCompOp:
    """The operator that gives the same result if both sides are exchanged."""
    mirrored: dict[type, type] = {
        cst.LessThan: cst.GreaterThan,
        cst.GreaterThan: cst.LessThan,
        cst.LessThanEqual: cst.GreaterThanEqual,
        cst.GreaterThanEqual: cst.LessThanEqual,
    }
    kind = mirrored.get(type(op))
    return kind() if kind is not None else op


def compare_rank(rank: RankValue, op: cst.BaseCompOp, right: Value) -> Value:
    """The value of `rank op right`."""
    zero = is_zero(rank)
    number = right.value if isinstance(right, Const) else None
    if isinstance(right, Const) and number is None:
        # a program that runs on ranks has one
        return Const(isinstance(op, NEGATED))
    if isinstance(op, cst.In | cst.NotIn) and isinstance(right, Sequence):
        numbers = [i.value for i in right.items if isinstance(i, Const)]
        if set(numbers) <= {0, -1} and 0 in numbers:
            return zero if isinstance(op, cst.In) else zero.negate()
        return RankTest(Ranks.SOME, Ranks.SOME)
    if number == -1:
        # the old launcher passes -1 for "not distributed"
        return Const(isinstance(op, cst.NotEqual | cst.GreaterThan | cst.GreaterThanEqual))
    if isinstance(right, RankValue):
        same = right.scope == rank.scope
        return Const(isinstance(op, NEGATED) != same) if same else Unknown(varying=True)
    if isinstance(op, cst.Equal | cst.Is | cst.NotEqual | cst.IsNot):
        test = is_number(rank, number if isinstance(number, int) else None)
        test.in_turn = isinstance(right, Unknown) and right.varying
        return test.negate() if isinstance(op, NEGATED) else test
    if (number == 0 and isinstance(op, cst.GreaterThan)) or (
        number == 1 and isinstance(op, cst.GreaterThanEqual)
    ):
        return zero.negate()
    if (number == 0 and isinstance(op, cst.LessThanEqual)) or (
        number == 1 and isinstance(op, cst.LessThan)
    ):
        return zero
    if number == 0 and isinstance(op, cst.GreaterThanEqual):
        return Const(True)
    return RankTest(Ranks.SOME, Ranks.SOME)


def test_choice(value: Value, holds: Callable[[Value], bool | None]) -> RankTest | None:
    """The test of the rank that a test of one of two values is; None if it is no such test.

    holds: whether the test is true for one of the two values; None if unknown. Where the result is
    known of one value only, the other one is there to give the other result.
    """
    if isinstance(value, LoaderValue) and value.only_on is not None:
        return value.only_on.as_test() if holds(value) else value.only_on.as_test().negate()
    if not isinstance(value, RankChoice) or value.test is None:
        return None
    one, two = (holds(side) if side is not None else None for side in (value.one, value.two))
    if one is None and two is None:
        return None
    one = not two if one is None else one
    two = not one if two is None else two
    if one is two:
        return None
    return value.test if one else value.test.negate()
