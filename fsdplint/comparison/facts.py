"""Facts of a plan, and whether the values of two facts are the same."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from fsdplint.trace import Event, GuardKind, Location
from fsdplint.trace.arguments import (
    Argument,
    Built,
    Constant,
    OneOf,
    Opaque,
    PartOfModel,
    SomeOf,
    is_known,
)

Key = tuple[str, str]  # a topic and a subject


@dataclass(frozen=True)
class Fact:
    """One thing that holds for a run.

    Attributes:
        topic: what it is about: "unit", "optimizer lr".
        subject: which object it is about: the path of a unit. Empty if there is only one.
        value: what holds.
        event: what happened.
        intended: what the program intends where its call has no effect or fails; None elsewhere.
    """

    topic: str
    subject: str
    value: Argument
    event: Event
    intended: Argument | None = None

    @property
    def at(self) -> Location:
        """The place in the program."""
        return self.event.site.location()

    @property
    def conditions(self) -> tuple[str, ...]:
        """The configuration in which it holds; empty for any."""
        found = [str(one) for one in self.event.guards if one.kind is GuardKind.CONFIG]
        return tuple(dict.fromkeys(found))


@dataclass
class Plan:
    """The facts of one run.

    Attributes:
        facts: the facts by topic and subject; several for what happens several times.
        gaps: the topics of which there may be further facts, with the reason.
        doubts: the topics whose facts may not hold, with the reason.
    """

    facts: dict[Key, list[Fact]] = field(default_factory=dict)
    gaps: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        topic: str,
        subject: str,
        value: object,
        event: Event,
        intended: Argument | None = None,
    ) -> None:
        """Add a fact, unless it is there already."""
        given = value if isinstance(value, Argument) else Constant(value)
        known = self.facts.setdefault((topic, subject), [])
        if all((one.value, one.intended) != (given, intended) for one in known):
            known.append(Fact(topic, subject, given, event, intended))

    def as_intended(self) -> Plan:
        """The plan of a program that is to be changed: it may become what it intends, too."""
        facts = {
            key: [
                one
                if one.intended is None
                else replace(one, value=OneOf((one.value, one.intended)))
                for one in found
            ]
            for key, found in self.facts.items()
        }
        return replace(self, facts=facts)


def same_argument(one: Argument, other: Argument) -> bool | None:
    """Whether two values are the same; None if that is not known."""
    match one, other:
        case OneOf(), _:
            answers = [same_argument(part, other) for part in one.values]
            return True if True in answers else None if None in answers else False
        case _, OneOf():
            return same_argument(other, one)
        case SomeOf(), _:
            impossible = all(same_argument(part, other) is False for part in one.values)
            return False if impossible else None
        case _, SomeOf():
            return same_argument(other, one)
        case Constant(), Constant():
            return _same_constants(one.value, other.value)
        case Built(), Built():
            return _same_objects(one, other)
        case Opaque(), Opaque():
            if one.origin and one.origin == other.origin:
                return True
            differ = differ_in_constants(one.code, other.code) or is_scaled(one.code, other.code)
            return False if differ else None
        case PartOfModel(), PartOfModel() if not (one.complete and other.complete):
            return None
    if is_known(one) and is_known(other):
        return one == other
    return None


def _same_constants(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def _same_objects(one: Built, other: Built) -> bool | None:
    """Whether two objects are the same; a list is the same as a tuple."""
    if one.name == other.name == "mesh" and _dimensions_swapped(one, other):
        return False
    lists = {"list", "tuple"}
    if one.name != other.name and not {one.name, other.name} <= lists:
        return False
    left, right = dict(one.items), dict(other.items)
    answers: list[bool | None] = [
        same_argument(left[k], right[k]) for k in left.keys() & right.keys()
    ]
    if left.keys() != right.keys():
        answers.append(False if one.complete and other.complete else None)
    if not (one.complete and other.complete):
        answers.append(None)
    if False in answers:
        return False
    return None if None in answers else True


def _dimensions_swapped(one: Built, other: Built) -> bool:
    """Whether two meshes have the same dimensions in another order."""
    left, right = ([str(size) for _, size in mesh.items] for mesh in (one, other))
    return left != right and sorted(left) == sorted(right) and str(Opaque()) not in left


def differ_in_constants(one: str, other: str) -> bool:
    """Whether two expressions differ, and in nothing but constants."""
    try:
        left, right = (ast.parse(text.strip(), mode="eval") for text in (one, other))
    except (SyntaxError, ValueError, RecursionError):
        return False
    if not one or not other or ast.dump(left) == ast.dump(right):
        return False
    for tree in (left, right):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant):
                node.value = None
    return ast.dump(left) == ast.dump(right)


_NEUTRAL = {ast.Mult: 1, ast.Div: 1, ast.Pow: 1, ast.Add: 0, ast.Sub: 0}


def is_scaled(one: str, other: str) -> bool:
    """Whether one of two expressions is the other, changed by a number: `lr` and `lr * 2`."""
    try:
        left, right = (ast.parse(text.strip(), mode="eval").body for text in (one, other))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return _is_changed_by_number(left, right) or _is_changed_by_number(right, left)


def _is_changed_by_number(plain: ast.expr, changed: ast.expr) -> bool:
    if not isinstance(changed, ast.BinOp) or type(changed.op) not in _NEUTRAL:
        return False
    parts = [(changed.left, changed.right)]
    if isinstance(changed.op, ast.Mult | ast.Add):
        parts.append((changed.right, changed.left))
    neutral = _NEUTRAL[type(changed.op)]
    return any(
        ast.dump(part) == ast.dump(plain)
        and isinstance(number, ast.Constant)
        and isinstance(number.value, int | float)
        and number.value != neutral
        for part, number in parts
    )
