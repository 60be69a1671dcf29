"""The relations of numbers and tests that differ from turn to turn."""

from __future__ import annotations

import pytest

from fsdplint.trace.numbers import ONE, Number, Token, of_atom, remainder
from fsdplint.trace.predicates import AllOf, AnyOf, Not, Positive, Predicate, Truth, Zero, truth

STEP, SIZE = of_atom(Token()), of_atom("args.accumulate")
NEXT = STEP.plus(ONE)
EVERY = Zero(remainder(NEXT, SIZE))  # `(step + 1) % size == 0`
LAST = Token(last=SIZE.plus(ONE, -1))
AT_END = Zero(of_atom(LAST).plus(SIZE, -1).plus(ONE))  # `index == size - 1`
STOP = Zero(NEXT.plus(of_atom("len(loader)"), -1))  # `step + 1 == len(loader)`
FLAG = Truth()


@pytest.mark.parametrize(
    ("asked", "fact", "expected"),
    [
        (EVERY, EVERY, True),
        (Not(EVERY), EVERY, False),
        (Zero(remainder(STEP, SIZE)), EVERY, False),  # one turn apart
        (EVERY, Not(Zero(remainder(STEP, SIZE))), None),
        (Zero(remainder(STEP, SIZE).plus(SIZE, -1).plus(ONE)), EVERY, True),  # `== size - 1`
        (Zero(remainder(STEP, Number(4)).plus(Number(3), -1)),
         Zero(remainder(NEXT, Number(4))), True),
        (Zero(remainder(STEP, Number(4))), Zero(remainder(NEXT, Number(4))), False),
        (Zero(remainder(NEXT, Number(2))), Zero(remainder(NEXT, Number(4))), None),
        (Zero(remainder(of_atom(LAST).plus(ONE), SIZE)), AT_END, True),
        (Positive(SIZE.plus(ONE, -1).plus(of_atom(LAST), -1)), AT_END, False),  # `index < size - 1`
        (AT_END, Not(Positive(SIZE.plus(ONE, -1).plus(of_atom(LAST), -1))), True),
        (Positive(STEP), Positive(NEXT), None),
        (Positive(NEXT), Positive(STEP), True),
        (AnyOf((EVERY, STOP)), AnyOf((EVERY, STOP)), True),
        (EVERY, AnyOf((EVERY, STOP)), None),
        (EVERY, Not(AnyOf((EVERY, STOP))), False),
        (AllOf((EVERY, FLAG)), EVERY, None),
        (FLAG, Not(FLAG), False),
        (FLAG, Truth(), None),
    ],
)  # fmt: skip
def test_what_a_fact_says(asked: Predicate, fact: Predicate, expected: bool | None) -> None:
    assert truth(asked, [fact]) is expected
