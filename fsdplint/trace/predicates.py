"""What is known of numbers and tests that differ from turn to turn: `(step + 1) % n == 0`.

The interpreter describes such a test as a predicate over tokens. Two tests are related if the same
tokens occur in both, whatever the program calls them. `truth` evaluates a predicate under others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fsdplint.trace.numbers import (
    Atom,
    Number,
    Remainder,
    Token,
    divides,
    division,
    equal_up_to_sign,
    of_atom,
    same_division,
    substitute,
)


@dataclass(frozen=True)
class Zero:
    number: Number


@dataclass(frozen=True)
class Positive:
    number: Number


@dataclass(frozen=True)
class Truth:
    """A value is true. Nothing else is known of it."""

    atom: Atom = field(default_factory=Token)


@dataclass(frozen=True)
class Not:
    inner: Predicate


@dataclass(frozen=True)
class AllOf:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class AnyOf:
    parts: tuple[Predicate, ...]


Predicate = Zero | Positive | Truth | Not | AllOf | AnyOf
ALWAYS, NEVER = AllOf(()), AnyOf(())
Literal = tuple[Zero | Positive | Truth, bool]
MAX_CASES = 16


def negated(predicate: Predicate | None) -> Predicate | None:
    """The opposite of a predicate; None of one that is not known."""
    if isinstance(predicate, Not):
        return predicate.inner
    return Not(predicate) if predicate is not None else None


def is_truth(predicate: Predicate | None) -> bool:
    """Whether a predicate is that a value is true, or false, which no number decides."""
    return isinstance(predicate.inner if isinstance(predicate, Not) else predicate, Truth)


def either(test: Predicate, one: Predicate, other: Predicate) -> Predicate:
    """`one if test else other`"""
    if (one, other) == (ALWAYS, NEVER):
        return test
    if (one, other) == (NEVER, ALWAYS):
        return Not(test)
    return AnyOf((AllOf((test, one)), AllOf((Not(test), other))))


def truth(predicate: Predicate, facts: Iterable[Predicate]) -> bool | None:
    """Whether a predicate holds where some facts hold; None if that is not certain."""
    found = truths(predicate, facts)
    return found.pop() if len(found) == 1 else None


def truths(predicate: Predicate, facts: Iterable[Predicate]) -> set[bool | None]:
    """The outcomes of a predicate in the cases that the facts leave open."""
    return {_Case(case).truth(predicate) for case in _cases(facts)}


def tokens_in(predicates: Iterable[Predicate]) -> set[Token]:
    """The tokens that occur in some predicates."""
    return {atom for atom in atoms_in(predicates) if isinstance(atom, Token)}


def atoms_in(predicates: Iterable[Predicate]) -> Iterator[Atom]:
    """The atoms that occur in some predicates."""
    for predicate in predicates:
        yield from _atoms(predicate)


def _atoms(of: Predicate | Number | Remainder) -> Iterator[Atom]:
    match of:
        case Number():
            for atom, _ in of.parts:
                yield atom
                if isinstance(atom, Remainder):
                    yield from _atoms(atom)
        case Remainder():
            yield from _atoms(of.of)
            yield from _atoms(of.by)
        case Truth():
            yield of.atom
        case Zero() | Positive():
            yield from _atoms(of.number)
        case Not():
            yield from _atoms(of.inner)
        case AllOf() | AnyOf():
            for part in of.parts:
                yield from _atoms(part)


def _cases(facts: Iterable[Predicate]) -> list[list[Literal]]:
    cases: list[list[Literal]] = [[]]
    for fact in facts:
        further = [
            [*case, *more]
            for case in cases
            for more in _alternatives(fact, True)
            if all(_Case(case).truth(atomic) is not (not holds) for atomic, holds in more)
        ]
        if further and len(further) <= MAX_CASES:
            cases = further
    return cases


def _alternatives(fact: Predicate, holds: bool) -> list[list[Literal]]:
    """The ways in which a predicate is true, or false: as literals that hold together."""
    if isinstance(fact, Not):
        return _alternatives(fact.inner, not holds)
    if isinstance(fact, AllOf | AnyOf):
        if isinstance(fact, AllOf) is holds:
            found: list[list[Literal]] = [[]]
            for part in fact.parts:
                found = [[*one, *more] for one in found for more in _alternatives(part, holds)]
            return found[: MAX_CASES + 1]
        found = []
        for number, part in enumerate(fact.parts):  # the first part that decides it
            before: Predicate = AllOf(fact.parts[:number])
            if holds:
                before = AllOf(tuple(map(Not, fact.parts[:number])))
            for one in _alternatives(before, True):
                found += [[*one, *more] for more in _alternatives(part, holds)]
        return found[: MAX_CASES + 1]
    return [[(fact, holds)]]


class _Case:
    """Literals that hold together."""

    def __init__(self, literals: list[Literal]) -> None:
        self.known: dict[Token, Number] = {}
        self.literals: list[Literal] = []
        for atomic, holds in sorted(literals, key=lambda one: not _equates(one)):
            if isinstance(atomic, Truth):
                self.literals.append((atomic, holds))
                continue
            number = substitute(atomic.number, self.known)
            if isinstance(atomic, Positive) and not holds and (last := _at_last_turn(number)):
                atomic, holds, number = Zero(last), True, last
            if isinstance(atomic, Zero) and holds and self._solve(number):
                continue
            self.literals.append((type(atomic)(number), holds))

    def _solve(self, number: Number) -> bool:
        """Use an equation for one of its tokens; whether it has one."""
        for atom, count in number.parts:
            if isinstance(atom, Token) and count in (1, -1):
                rest = number.plus(of_atom(atom), -count)
                self.known[atom] = rest.times(-count)
                self.known = {
                    token: substitute(value, {atom: self.known[atom]})
                    for token, value in self.known.items()
                }
                return True
        return False

    def truth(self, predicate: Predicate) -> bool | None:
        match predicate:
            case Not():
                inner = self.truth(predicate.inner)
                return None if inner is None else not inner
            case AllOf() | AnyOf():
                decisive = isinstance(predicate, AnyOf)
                found = [self.truth(part) for part in predicate.parts]
                if decisive in found:
                    return decisive
                return None if None in found else not decisive
            case Truth():
                return next((holds for one, holds in self.literals if one == predicate), None)
            case Zero():
                return self._is_zero(substitute(predicate.number, self.known))
        return self._is_positive(substitute(predicate.number, self.known))

    def _is_zero(self, number: Number) -> bool | None:
        if not number.parts:
            return number.constant == 0
        divided = division(number)
        if divided is not None and not divided.of.parts:
            return divides(divided.by, divided.of.constant)
        for literal, holds in self.literals:
            if isinstance(literal, Zero):
                other = division(literal.number)
                if divided is None or other is None:
                    same = equal_up_to_sign(number, literal.number)
                else:
                    same = same_division(divided, other)
                if same is not None and (same or holds):
                    return same and holds
            elif isinstance(literal, Positive) and holds:
                differences = [
                    number.plus(literal.number, -1),
                    number.times(-1).plus(literal.number, -1),
                ]
                if any(not one.parts and one.constant >= 0 for one in differences):
                    return False
        return None

    def _is_positive(self, number: Number) -> bool | None:
        if not number.parts:
            return number.constant > 0
        for literal, holds in self.literals:
            if isinstance(literal, Truth):
                continue
            same = number.plus(literal.number, -1)
            opposite = number.times(-1).plus(literal.number, -1)
            if isinstance(literal, Zero):
                if holds and not same.parts:
                    return same.constant > 0
                if holds and not opposite.parts:
                    return opposite.constant < 0
            elif holds:
                if not same.parts and same.constant >= 0:
                    return True
                if not opposite.parts and opposite.constant >= 0:
                    return False
            elif not same.parts and same.constant <= 0:
                return False
            elif not opposite.parts and opposite.constant < 0:
                return True
        return None


def _equates(literal: Literal) -> bool:
    return isinstance(literal[0], Zero) and literal[1]


def _at_last_turn(number: Number) -> Number | None:
    """`turn - last` of a token where its last turn is reached: `last - turn` is not positive."""
    for atom, _ in number.parts:
        if isinstance(atom, Token) and atom.last is not None:
            to_end = atom.last.plus(of_atom(atom), -1)
            if number == to_end:
                return to_end
    return None
