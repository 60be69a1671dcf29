"""Numbers and tests that differ from turn to turn, as the terms of values: `(step + 1) % n == 0`.

`Unknown.term` is the number or the predicate that a value is. A value without one becomes a token
of its own when a computation uses it. The constants of a loop's first turn (`step = 0` before it)
do not hold in later turns, so that a test of constants alone has no predicate.
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.values import (
    Bound,
    Condition,
    Const,
    Context,
    Function,
    GeneratorContext,
    Method,
    Partial,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.trace.numbers import Number, Token, of_atom, remainder
from fsdplint.trace.predicates import (
    ALWAYS,
    NEVER,
    AllOf,
    AnyOf,
    Not,
    Positive,
    Predicate,
    Truth,
    Zero,
    either,
    negated,
)


def number_of(value: Value) -> Number | None:
    """The integer that a value is; None if it is none."""
    if isinstance(value, Const):
        return Number(value.value) if type(value.value) is int else None
    if not isinstance(value, Unknown) or value.refined is not None:
        return None
    if value.term is None:
        value.term = of_atom(_atom(value))
    return value.term if isinstance(value.term, Number) else None


def _atom(value: Unknown) -> str | Token:
    return value.origin if value.origin and not value.varying else Token()


def predicate_of(value: Value) -> Predicate | None:
    """What a test of a value says; None if it is not known."""
    if isinstance(value, Const):
        return ALWAYS if value.value else NEVER
    if isinstance(value, Condition):
        return negated(value.predicate) if value.negated else value.predicate
    number = number_of(value)
    if number is None:
        term = value.term if isinstance(value, Unknown) else None
        return term if not isinstance(term, Number) else None
    if number.constant == 0 and len(number.parts) == 1:
        atom, _ = next(iter(number.parts))
        if isinstance(atom, str | Token):
            return Truth(atom)
    return Not(Zero(number))


def number_of_operation(
    left: Value, op: cst.BaseBinaryOp | cst.BaseAugOp, right: Value
) -> Number | None:
    """The number that an operation gives; None if it is not known."""
    one, other = number_of(left), number_of(right)
    if one is None or other is None:
        return None
    if isinstance(op, cst.Add | cst.AddAssign):
        return one.plus(other)
    if isinstance(op, cst.Subtract | cst.SubtractAssign):
        return one.plus(other, -1)
    if isinstance(op, cst.Multiply) and not (one.parts and other.parts):
        return other.times(one.constant) if not one.parts else one.times(other.constant)
    if isinstance(op, cst.Modulo) and one.parts:
        return remainder(one, other)
    return None


def comparison_predicate(left: Value, op: cst.BaseCompOp, right: Value) -> Predicate | None:
    """What a comparison says of two numbers, or of a value and a text; None if it is not known."""
    one, other = number_of(left), number_of(right)
    if isinstance(op, cst.Equal | cst.NotEqual):
        one, other = one or _number_of_text(left), other or _number_of_text(right)
    if one is None or other is None:
        return None
    difference = one.plus(other, -1)
    if not difference.parts:
        return None
    if isinstance(op, cst.Equal | cst.Is):
        return Zero(difference)
    if isinstance(op, cst.NotEqual | cst.IsNot):
        return Not(Zero(difference))
    if isinstance(op, cst.GreaterThan):
        return Positive(difference)
    if isinstance(op, cst.LessThanEqual):
        return Not(Positive(difference))
    if isinstance(op, cst.LessThan):
        return Positive(difference.times(-1))
    if isinstance(op, cst.GreaterThanEqual):
        return Not(Positive(difference.times(-1)))
    return None


def _number_of_text(value: Value) -> Number | None:
    """A number that stands for a text, which the same text alone equals; None of other values."""
    if not isinstance(value, Const) or not isinstance(value.value, str):
        return None
    return of_atom(repr(value.value))


def boolean_predicate(
    is_and: bool, left: Predicate | None, right: Predicate | None
) -> Predicate | None:
    """What `left and right` or `left or right` says; None if one of them is not known."""
    if left is None or right is None:
        return None
    return AllOf((left, right)) if is_and else AnyOf((left, right))


def conditional_predicate(test: Predicate | None, one: Value, other: Value) -> Predicate | None:
    """What `one if test else other` says; None if it is not known."""
    kinds = Const | Unknown | Condition
    if test is None or not isinstance(one, kinds) or not isinstance(other, kinds):
        return None
    if any(isinstance(v, Const) and not isinstance(v.value, bool) for v in (one, other)):
        return None
    first, second = predicate_of(one), predicate_of(other)
    return either(test, first, second) if first is not None and second is not None else None


def with_condition(test: Predicate | None, joined: Value, one: Value, other: Value) -> Value:
    """The joined value of `one if test else other`, with what decides between the two.

    Of `no_sync()`, or the context of a function, and another context manager, the test decides
    whether it is open.
    """
    if isinstance(joined, Unknown):
        if joined is not one and joined is not other:
            joined.term = conditional_predicate(test, one, other)
        return joined
    pauses = [_pauses(value) for value in (one, other)]
    pausing = one if pauses[0] else other
    if (
        test is None
        or pauses[0] == pauses[1]
        or not isinstance(pausing, Context | GeneratorContext | Method | Function | Bound | Partial)
    ):
        return joined
    if isinstance(pausing, Function | Bound | Partial):
        pausing = chosen_at_times(pausing)
    pausing = replace(pausing, opens=test if pauses[0] else Not(test))
    if not isinstance(pausing, Method | Partial):
        pausing.certain = False
    return pausing


def _pauses(value: Value) -> bool:
    """Whether a value is certainly `model.no_sync()` or a function's context, or makes it."""
    if isinstance(value, GeneratorContext) or makes_context(value):
        return True
    if isinstance(value, Method):
        return value.name == "no_sync"
    return isinstance(value, Context) and value.kind == "no_sync"


def makes_context(value: Value) -> bool:
    """Whether a value is a function under @contextmanager, or a lambda that may call one."""
    if isinstance(value, Partial | Bound):
        return makes_context(value.function)
    if not isinstance(value, Function):
        return False
    if isinstance(value.node, cst.Lambda):
        return not value.node.params.params
    return "contextmanager" in value.decorators


def chosen_at_times(value: Value) -> Partial:
    """A function that a variable holds at times only."""
    if isinstance(value, Partial):
        return replace(value, certain=False)
    return Partial(value, certain=False)


def presence_at_times(value: Unknown, test: Value | None, *, holds: bool) -> Value:
    """The test whether there is what there is at times only. holds: the outcome if there is.

    test: a test that is true where there is the value, if it is known.
    """
    if test is not None and holds:
        return test
    predicate = predicate_of(value)
    term = predicate if holds else negated(predicate)
    return Unknown(varying=True, term=term, rank_local=value.rank_local)


def number_turns(elements: list[Value]) -> tuple[list[Value], list[Token]]:
    """The elements of a loop whose turns repeat, with a token of its own for each turn's number.

    Also returns the tokens.
    """
    made, tokens = [], []
    for element in elements:
        pair = element if isinstance(element, Sequence) and element.kind == "tuple" else None
        number = pair.items[0] if pair is not None and pair.items else element
        if not isinstance(number, Unknown) or number.turn is None:
            made.append(element)
            continue
        token = Token(last=number.turn.last, counts=True)
        tokens.append(token)
        number = replace(number, term=of_atom(token), turn=None, parts={})
        made.append(number if pair is None else replace(pair, items=[number, *pair.items[1:]]))
    return made, tokens
