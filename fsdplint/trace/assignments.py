"""Small numbers for which predicates hold: whether two tests leave each other free.

Only the numbers of the turns of loops count, which take one value after the other, and settings of
which nothing else is known. Any other value may depend on the rest in a way that is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from fsdplint.trace.numbers import Atom, Number, Remainder, Token
from fsdplint.trace.predicates import (
    AllOf,
    AnyOf,
    Not,
    Positive,
    Predicate,
    Truth,
    Zero,
    atoms_in,
)

# The first turns may differ from all others.
_TURNS, _SETTINGS, _LENGTHS = range(2, 9), range(2, 5), range(3, 12)
MAX_ATOMS = 4
Values = Mapping[Atom, int]


def may_hold(predicate: Predicate, facts: Iterable[Predicate]) -> bool:
    """Whether a predicate certainly holds in some turn in which the facts hold, whatever values
    above 1 the settings have; loops are long enough."""
    facts = list(facts)
    wanted, known = set(atoms_in([predicate])), set(atoms_in(facts))
    atoms = {atom for atom in wanted | known if not isinstance(atom, Remainder)}
    turns = [atom for atom in atoms if isinstance(atom, Token)]
    ends = {part for turn in turns if turn.last is not None for part, _ in turn.last.parts}
    free = sorted({atom for atom in ends if isinstance(atom, str)})
    settings = sorted({atom for atom in atoms if isinstance(atom, str)} - {*free})
    if not _is_followed([predicate, *facts], turns, ends) or not turns:
        return False
    if len(turns) + len(free) + len(settings) > MAX_ATOMS:
        return False
    others = {atom for atom in known if isinstance(atom, str)} - {*free}
    if others and not {atom for atom in wanted if isinstance(atom, str)} <= {*others, *free}:
        return False  # one setting may follow from another
    return all(
        _has_example(predicate, facts, turns, free, dict(zip(settings, values, strict=True)))
        for values in product(_SETTINGS, repeat=len(settings))
    )


def _is_followed(predicates: list[Predicate], turns: list[Token], ends: set[Atom]) -> bool:
    """Whether predicates are about turns of loops and settings alone."""
    if any(turn.ended is None for turn in turns) or not all(isinstance(one, str) for one in ends):
        return False
    return not any(map(_has_truth, predicates))


def _has_truth(predicate: Predicate) -> bool:
    if isinstance(predicate, Truth):
        return True
    if isinstance(predicate, Not):
        return _has_truth(predicate.inner)
    return isinstance(predicate, AllOf | AnyOf) and any(map(_has_truth, predicate.parts))


def _has_example(
    predicate: Predicate,
    facts: list[Predicate],
    turns: list[Token],
    free: list[str],
    settings: dict[Atom, int],
) -> bool:
    ranges = [*[_TURNS for _ in turns], *[_LENGTHS for _ in free]]
    for numbers in product(*ranges):
        values: dict[Atom, int] = {**settings, **dict(zip([*turns, *free], numbers, strict=True))}
        within = all(
            turn.last is None or values[turn] <= _value(turn.last, values) for turn in turns
        )
        if within and all(_holds(one, values) for one in [predicate, *facts]):
            return True
    return False


def _holds(predicate: Predicate, values: Values) -> bool:
    match predicate:
        case Zero():
            return _value(predicate.number, values) == 0
        case Positive():
            return _value(predicate.number, values) > 0
        case Not():
            return not _holds(predicate.inner, values)
        case AllOf():
            return all(_holds(one, values) for one in predicate.parts)
        case AnyOf():
            return any(_holds(one, values) for one in predicate.parts)
    return False


def _value(number: Number, values: Values) -> int:
    found = number.constant
    for atom, count in number.parts:
        if isinstance(atom, Remainder):
            by = _value(atom.by, values)
            found += count * (_value(atom.of, values) % by if by else 0)
        else:
            found += count * values[atom]
    return found
