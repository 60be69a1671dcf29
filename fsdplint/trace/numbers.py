"""Integers that a program computes from unknown values: `(step + 1) % n`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(eq=False)
class Token:
    """An unknown value of one evaluation, such as the variable of a loop in one turn.

    last: what it is in the last turn of its loop; None if that is unknown.
    ended: the number of events before the end of the loop; None if it may end early.
    counts: whether it is one more in each turn.
    most: the largest value that it may have, if it is the length of a window that the program cut
        from a list; it is at least 1.
    """

    last: Number | None = None
    ended: int | None = None
    counts: bool = False
    most: Number | None = None


@dataclass(frozen=True)
class Remainder:
    """`of % by`"""

    of: Number
    by: Number


Atom = str | Token | Remainder  # a string: the origin of a setting, which never changes


@dataclass(frozen=True)
class Number:
    """A sum of multiples of atoms, and a constant."""

    constant: int = 0
    parts: frozenset[tuple[Atom, int]] = frozenset()

    def plus(self, other: Number, factor: int = 1) -> Number:
        """The sum of this number and a multiple of another one."""
        factors = dict(self.parts)
        for atom, count in other.parts:
            factors[atom] = factors.get(atom, 0) + factor * count
        parts = frozenset((atom, count) for atom, count in factors.items() if count)
        return Number(self.constant + factor * other.constant, parts)

    def times(self, factor: int) -> Number:
        return Number().plus(self, factor)


ONE = Number(1)


def of_atom(atom: Atom) -> Number:
    return Number(0, frozenset([(atom, 1)]))


def remainder(of: Number, by: Number) -> Number:
    """`of % by`, without multiples of the divisor in `of`."""
    if not by.parts:
        if by.constant == 0:
            return of_atom(Remainder(of, by))
        parts = ((atom, count % by.constant) for atom, count in of.parts)
        of = Number(of.constant % by.constant, frozenset(part for part in parts if part[1]))
        return of if not of.parts else of_atom(Remainder(of, by))
    atom, count = next(iter(by.parts))
    times = dict(of.parts).get(atom, 0)
    if times and times % count == 0:
        of = of.plus(by, -(times // count))
    return of if of == Number() else of_atom(Remainder(of, by))


def substitute(number: Number, known: Mapping[Token, Number]) -> Number:
    result = Number(number.constant)
    for atom, count in number.parts:
        if isinstance(atom, Token) and atom in known:
            value = known[atom]
        elif isinstance(atom, Remainder):
            value = remainder(substitute(atom.of, known), substitute(atom.by, known))
        else:
            value = of_atom(atom)
        result = result.plus(value, count)
    return result


def division(number: Number) -> Remainder | None:
    """The division whose remainder is 0 if a number is; None if it is no such number.

    `i % n - r` is 0 if `(i - r) % n` is: the program compares with possible remainders.
    """
    rest = [part for part in number.parts if isinstance(part[0], Remainder)]
    if len(rest) != 1 or rest[0][1] not in (1, -1):
        return None
    atom, sign = rest[0]
    assert isinstance(atom, Remainder)
    wanted = number.plus(of_atom(atom), -sign).times(-sign)
    if atom.by.parts:
        reduced = wanted.plus(atom.by, -1)
        if not wanted.parts and wanted.constant < 0 or wanted.parts and reduced.parts:
            return None
        if not reduced.parts and reduced.constant >= 0:
            return None  # the remainder is below the divisor
    elif wanted.parts or not 0 <= wanted.constant < abs(atom.by.constant):
        return None
    made = remainder(atom.of.plus(wanted, -1), atom.by)
    found = next((one for one, _ in made.parts if isinstance(one, Remainder)), None)
    return found if found is not None else Remainder(made, atom.by)


def divides(by: Number, number: int) -> bool | None:
    """Whether a number is a multiple of a divisor, which is more than 1 if it is not known."""
    if not by.parts:
        return number % by.constant == 0 if by.constant else None
    return True if number == 0 else False if number in (1, -1) else None


def same_division(one: Remainder, other: Remainder) -> bool | None:
    """Whether the first remainder is 0 where the other is; None if that is not certain."""
    difference = one.of.plus(other.of, -1)
    if one.by != other.by or difference.parts:
        return None
    return divides(one.by, difference.constant)


def equal_up_to_sign(one: Number, other: Number) -> bool | None:
    """Whether the first number is 0 where the other is; None if that is not certain."""
    for difference in (one.plus(other, -1), one.plus(other)):
        if not difference.parts:
            return difference.constant == 0
    return None
