"""Code that runs only after an error of code that the migration rewrites.

It is a handler of the error, or it is behind a test of what only the handler leaves None:

    try:
        state = FSDP.optim_state_dict(model, optimizer)
    except Exception:
        state = None
    if state is None:
        state = optimizer.state_dict()
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import Definition, definitions
from fsdplint.migration.changes import Changes
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import Function, ancestors


def is_fallback(changes: Changes, source: Source, node: cst.CSTNode) -> bool:
    """Whether a node runs only after an error of code that the migration rewrites."""
    inner = node
    for outer in ancestors(source, node):
        if isinstance(outer, Function):
            return False
        if isinstance(outer, cst.ExceptHandler) and _is_tried(changes, source, outer):
            return True
        if isinstance(outer, cst.If) and inner is outer.body:
            tested = _tested_for_none(outer.test)
            if tested is not None and _is_none_after_error(changes, source, tested):
                return True
        inner = outer
    return False


def _is_tried(changes: Changes, source: Source, handler: cst.ExceptHandler) -> bool:
    """Whether the code whose errors a handler catches is rewritten."""
    tried = source.parent(handler)
    return isinstance(tried, cst.Try) and changes.is_changed(source, tried.body)


def _tested_for_none(test: cst.BaseExpression) -> cst.Name | None:
    """The variable of `x is None` and of `not x`."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return test.expression if isinstance(test.expression, cst.Name) else None
    if not isinstance(test, cst.Comparison) or not isinstance(test.left, cst.Name):
        return None
    only = test.comparisons[0]
    is_none = isinstance(only.operator, cst.Is) and is_constant(only.comparator, "None")
    return test.left if is_none and len(test.comparisons) == 1 else None


def _is_none_after_error(changes: Changes, source: Source, name: cst.Name) -> bool:
    """Whether a variable is None at a test only after an error of code that gives it a value."""
    place = source.span(name)[0]
    found = definitions(source, name) or ()
    given = [
        one
        for one in found
        if not is_constant(one.value, "None") and source.span(one.statement)[0] < place
    ]
    return bool(given) and all(_is_tried_value(changes, source, one, name) for one in given)


def _is_tried_value(changes: Changes, source: Source, given: Definition, name: cst.Name) -> bool:
    """Whether a value is given by rewritten code, which runs before a test but for errors."""
    if not changes.is_changed(source, given.value):
        return False
    around = set(ancestors(source, name))
    inner: cst.CSTNode = given.statement
    for outer in ancestors(source, given.statement):
        if outer in around:
            return False
        if isinstance(outer, cst.Try) and outer.handlers and inner is outer.body:
            return not any(
                isinstance(one, cst.If | cst.ExceptHandler) and one not in around
                for one in ancestors(source, outer)
            )
        if not isinstance(outer, cst.BaseSuite | cst.With | cst.SimpleStatementLine):
            return False
        inner = outer
    return False
