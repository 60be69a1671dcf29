"""The statements that an assisted migration replaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.source.source import Source
from fsdplint.syntax.layout import body_end, line_end, start_of


class Form(Enum):
    """What stands in the place of a statement, below its old lines.

    RAISE: a `raise`. FUNCTION, CLASS: a function or class of the same name that raises when it is
    called, so that the module can still be imported. NOTHING: the code that reads the statement's
    names raises.
    """

    RAISE = "raise"
    FUNCTION = "function"
    CLASS = "class"
    NOTHING = "nothing"


@dataclass
class Place:
    """A statement that is replaced, and why."""

    source: Source
    statement: cst.CSTNode
    form: Form
    reasons: list[Blocked] = field(default_factory=list)
    last: cst.CSTNode | None = None  # of several statements that stand one after the other

    @property
    def span(self) -> tuple[int, int]:
        """The statement with its decorators and the comments at its end."""
        last = self.last or self.statement
        return start_of(self.source, self.statement), _end(self.source, last)

    def holds(self, source: Source, node: cst.CSTNode) -> bool:
        """Whether a node is part of the statement."""
        if source is not self.source:
            return False
        start, end = self.span
        left, right = source.span(node)
        return start <= left and right <= end

    def explain(self, *reasons: Blocked) -> None:
        """Add reasons, each once."""
        for one in reasons:
            if all(other.reason != one.reason for other in self.reasons):
                self.reasons.append(one)


def _end(source: Source, statement: cst.CSTNode) -> int:
    start, end = source.span(statement)
    if not isinstance(statement, cst.BaseCompoundStatement):
        return end
    end, ends_file = body_end(source, statement)
    return end if ends_file else line_end(source, max(start, end - 2))[0]


def join_places(places: Sequence[Place]) -> list[Place]:
    """The places, with those that follow each other in one block made one."""
    result: list[Place] = []
    for place in sorted(places, key=lambda one: (one.source.path, one.span)):
        before = result[-1] if result else None
        if before is None or not _follows(before, place):
            result.append(replace(place, reasons=list(place.reasons)))
            continue
        before.last = place.last or place.statement
        before.explain(*place.reasons)
    return result


def _follows(before: Place, place: Place) -> bool:
    """Whether two raising statements stand one after the other, with nothing but comments between."""
    source = place.source
    if before.source is not source or {before.form, place.form} != {Form.RAISE}:
        return False
    one, other = (
        source.parent(x) if isinstance(x, cst.BaseSmallStatement) else x
        for x in (before.last or before.statement, place.statement)
    )
    if one is None or other is None or one is other:
        return False
    block = source.parent(one)
    if not isinstance(block, cst.IndentedBlock | cst.Module) or source.parent(other) is not block:
        return False
    return any(x is one and y is other for x, y in pairwise(block.body))


def place_of(source: Source, node: cst.CSTNode) -> Place | None:
    """The statement that has to be replaced to replace a node; None if there is none.

    The head of a block is replaced with the whole block. A statement in the body of a class is
    replaced with the class: it would raise when the module is imported.
    """
    statement = _statement(source, node)
    if statement is None:
        return None
    if isinstance(statement, cst.FunctionDef):
        return Place(source, statement, Form.FUNCTION)
    scope = _scope(source, statement)
    if isinstance(statement, cst.ClassDef):
        return Place(source, statement, Form.CLASS)
    if isinstance(scope, cst.ClassDef):
        return Place(source, scope, Form.CLASS)
    return Place(source, statement, Form.RAISE)


def runs_on_import(source: Source, statement: cst.CSTNode) -> bool:
    """Whether a statement runs when its module is imported."""
    current = source.parent(statement)
    while current is not None:
        if isinstance(current, cst.FunctionDef | cst.Lambda):
            return False
        if isinstance(current, cst.If) and _tests_main(current.test):
            return False
        current = source.parent(current)
    return True


def _statement(source: Source, node: cst.CSTNode) -> cst.CSTNode | None:
    current: cst.CSTNode | None = node
    if isinstance(node, cst.SimpleStatementLine):
        current = node.body[0]
    while current is not None and not isinstance(
        current, cst.BaseSmallStatement | cst.BaseCompoundStatement
    ):
        current = source.parent(current)
    while isinstance(current, cst.If):  # an `elif` belongs to its `if`
        parent = source.parent(current)
        if not isinstance(parent, cst.If) or parent.orelse is not current:
            break
        current = parent
    return current


def _scope(source: Source, statement: cst.CSTNode) -> cst.CSTNode | None:
    """The function or class whose body holds a statement; None at the top of the module."""
    current = source.parent(statement)
    while current is not None and not isinstance(current, cst.FunctionDef | cst.ClassDef):
        current = source.parent(current)
    return current


def _tests_main(test: cst.BaseExpression) -> bool:
    """Whether a test is `__name__ == "__main__"`."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    sides = (test.left, test.comparisons[0].comparator)
    named = any(isinstance(side, cst.Name) and side.value == "__name__" for side in sides)
    return named and any(
        isinstance(side, cst.SimpleString) and side.evaluated_value == "__main__" for side in sides
    )
