"""A mesh that a program builds for some strategies, and that is None for all others."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import Definition, definitions
from fsdplint.migration.constructor import strategy
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import elements, is_constant


def strategies_with_mesh(
    migration: Migration, source: Source, mesh: cst.BaseExpression, chosen: cst.BaseExpression
) -> frozenset[str] | None:
    """The strategies for which a variable holds a mesh instead of None; None if that is not known.

    The program tests the variable with the strategy, which keeps its value from there on.
    """
    found = definitions(source, mesh) if isinstance(mesh, cst.Name) else None
    if not found or len(found) != 2 or not isinstance(chosen, cst.Name):
        return None
    empty = [one for one in found if is_constant(one.value, "None")]
    built = [one for one in found if not is_constant(one.value, "None")]
    if len(empty) != 1 or len(built) != 1:
        return None
    block = _block_of(source, built[0])
    test = source.parent(block) if block is not None else None
    if not isinstance(test, cst.If) or test.body is not block:
        return None
    if not _is_other_case(source, test, empty[0]) or _is_set_again(source, chosen, test):
        return None
    return _tested(migration, source, test.test, chosen.value)


def _block_of(source: Source, definition: Definition) -> cst.CSTNode | None:
    """The block whose own statement an assignment is."""
    line = source.parent(definition.statement)
    return source.parent(line) if line is not None else None


def _is_other_case(source: Source, test: cst.If, empty: Definition) -> bool:
    """Whether None is assigned in the `else` of a test, or before it in its block."""
    block = _block_of(source, empty)
    if isinstance(test.orelse, cst.Else):
        return block is test.orelse.body
    is_before = source.span(empty.statement)[0] < source.span(test)[0]
    return test.orelse is None and is_before and block is source.parent(test)


def _is_set_again(source: Source, name: cst.Name, test: cst.If) -> bool:
    """Whether a variable gets another value after a test, or in a way that is not seen."""
    found = definitions(source, name)
    start = source.span(test)[0]
    if found is None:
        return True
    return any(source.span(one.statement)[0] > start for one in found)


def _tested(
    migration: Migration, source: Source, test: cst.BaseExpression, name: str
) -> frozenset[str] | None:
    """The strategies for which a test of a variable is true."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or):
        sides = [_tested(migration, source, side, name) for side in (test.left, test.right)]
        known = [side for side in sides if side is not None]
        return known[0] | known[1] if len(known) == 2 else None
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    if not is_constant(test.left, name):
        return None
    (one,) = test.comparisons
    listed = elements(one.comparator) if isinstance(one.operator, cst.In) else None
    if isinstance(one.operator, cst.Equal | cst.Is):
        listed = [one.comparator]
    names = [strategy.literal(migration, item) for item in listed or ()]
    return frozenset(filter(None, names)) if names and all(names) else None
