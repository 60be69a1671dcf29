"""Small numbers for which predicates hold.

Only the numbers of the turns of loops count, which take one value after the other, and settings of
which nothing else is known. Any other value may depend on the rest in a way that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_TURNS, _SETTINGS = range(2, 9), range(2, 5)
MAX_TURNS = 2
Values = Mapping[Atom, int]


def may_hold(predicate: Predicate, at: int) -> bool:
    """Whether a predicate certainly holds in some turn, whatever value above 1 a setting has; loops
    are long enough.

    at: the index of an event in the turn.
    """
    atoms = set(atoms_in([predicate]))
    turns = [atom for atom in atoms if isinstance(atom, Token)]
    settings = [atom for atom in atoms if isinstance(atom, str)]
    if not 0 < len(turns) <= MAX_TURNS or len(settings) > 1 or _has_truth(predicate):
        return False
    if any(turn.ended is None or turn.ended <= at for turn in turns):
        return False
    return all(
        _has_example(predicate, turns, {setting: value for setting in settings})
        for value in _SETTINGS
    )


def may_hold_in_last_window(predicate: Predicate, facts: Sequence[Predicate], at: int) -> bool:
    """Whether a predicate certainly holds for some length of the last window that a loop goes
    through, whatever value above 1 the setting has that limits it.

    facts: what is known besides. at: the index of an event after the loop.
    """
    whole = AllOf((predicate, *facts))
    atoms = set(atoms_in([whole]))
    turns = [atom for atom in atoms if isinstance(atom, Token) and atom.most is None]
    windows = {atom for atom in atoms if isinstance(atom, Token)} - set(turns)
    for turn in turns:
        if turn.last is None or turn.ended is None or turn.ended > at:
            return False
        windows |= {one for one, _ in turn.last.parts if isinstance(one, Token)}
    window = windows.pop() if len(windows) == 1 else None
    if window is None or window.most is None or _has_truth(whole):
        return False
    settings = {atom for atom, _ in window.most.parts if isinstance(atom, str)}
    if not {atom for atom in atoms if isinstance(atom, str)} <= settings:
        return False
    return all(
        _holds_for_some_length(whole, window, turns, dict(zip(settings, values, strict=True)))
        for values in product(_SETTINGS, repeat=len(settings))
    )


def _holds_for_some_length(
    predicate: Predicate, window: Token, turns: list[Token], settings: Values
) -> bool:
    assert window.most is not None
    for length in range(1, _value(window.most, settings) + 1):
        values: dict[Atom, int] = {**settings, window: length}
        for turn in turns:
            assert turn.last is not None
            values[turn] = _value(turn.last, values)
        if _holds(predicate, values):
            return True
    return False


def _has_truth(predicate: Predicate) -> bool:
    if isinstance(predicate, Truth):
        return True
    if isinstance(predicate, Not):
        return _has_truth(predicate.inner)
    return isinstance(predicate, AllOf | AnyOf) and any(map(_has_truth, predicate.parts))


def _has_example(predicate: Predicate, turns: list[Token], settings: Values) -> bool:
    for numbers in product(_TURNS, repeat=len(turns)):
        values: dict[Atom, int] = {**settings, **dict(zip(turns, numbers, strict=True))}
        if _holds(predicate, values):
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
