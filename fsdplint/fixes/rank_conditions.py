"""Conditions of a rank test besides the rank."""

from __future__ import annotations

import libcst as cst

from fsdplint.fixes.rank_invariance import is_rank_invariant
from fsdplint.interpreter import Program
from fsdplint.interpreter.torch_values import RankTest, RankValue
from fsdplint.source.positions import descend
from fsdplint.source.source import Source

# Comparison operators and their opposites.
OPPOSITE = {cst.Equal: "!=", cst.NotEqual: "==", cst.Is: "is not", cst.IsNot: "is"}


def _admits_a_rank(test: cst.BaseExpression, holds: bool) -> bool:
    """Whether a rank test admits at least one rank regardless of its other conditions.

    `step % 100 == 0 and rank == 0` does not; `world_size == 1 or rank == 0` does.
    """
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _admits_a_rank(test.expression, not holds)
    if isinstance(test, cst.BooleanOperation):
        either = isinstance(test.operator, cst.Or) == holds
        return either and all(_admits_a_rank(part, holds) for part in (test.left, test.right))
    return True


def other_condition(
    source: Source, test: cst.BaseExpression, holds: bool, program: Program | None
) -> str | None:
    """The condition of a rank test besides the rank, if it is rank-invariant.

    holds: whether the test holds or fails where the node is reached.

    Returns:
        The text of the condition; "" if the test has no other condition; None if uncertain.
    """
    if _admits_a_rank(test, holds):
        return ""
    parts = _conjunction(test, holds) if program is not None else None
    if parts is None or program is None:
        return None
    others = [part for part in parts if not _asks_rank(program, part[0])]
    if len(parts) - len(others) != 1 or not all(
        _is_same_on_all_ranks(source, program, part) for part, _ in others
    ):
        return None
    text = " and ".join(_condition_text(source, *part) for part in others)
    return text if "\n" not in text else None


def _conjunction(
    test: cst.BaseExpression, holds: bool
) -> list[tuple[cst.BaseExpression, bool]] | None:
    """The conditions that must all hold (or all fail) for a test to hold (or fail)."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _conjunction(test.expression, not holds)
    if not isinstance(test, cst.BooleanOperation):
        return [(test, holds)]
    if isinstance(test.operator, cst.And) != holds:
        return None
    left, right = _conjunction(test.left, holds), _conjunction(test.right, holds)
    return [*left, *right] if left is not None and right is not None else None


def _asks_rank(program: Program, node: cst.BaseExpression) -> bool:
    values = program.values(node)
    return bool(values) and all(isinstance(value, RankTest | RankValue) for value in values)


def _is_same_on_all_ranks(source: Source, program: Program, node: cst.BaseExpression) -> bool:
    """Whether a condition is the same on all ranks, by its names where no value says otherwise."""
    read = (one for one in descend(node) if isinstance(one, cst.Name | cst.Attribute))
    return not any(map(program.evaluations.is_of_rank, read)) and is_rank_invariant(source, node)


def _condition_text(source: Source, node: cst.BaseExpression, holds: bool) -> str:
    """The text of a condition, or of its negation."""
    text = source.code(node)  # without enclosing parentheses
    if holds:
        return f"({text})" if isinstance(node, cst.IfExp) else text
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        target = node.comparisons[0]
        operator = OPPOSITE.get(type(target.operator))
        if operator is not None:
            return f"{source.code(node.left)} {operator} {source.code(target.comparator)}"
    if isinstance(node, cst.Name | cst.Attribute | cst.Call):
        return f"not {text}"
    return f"not ({text})"
