"""Uses of FSDP1's wrapper that remain in code that no run reaches with a wrapped model.

`if fp16:` and `if fsdp:` may never be true in the same interpreted run. In such code, an attribute
that only FSDP1's wrapper has is found by its text: the same name is a wrapped model elsewhere in the
function.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.diagnostics.finding import Fix
from fsdplint.interpreter import Program
from fsdplint.interpreter.values import ModuleValue, Value
from fsdplint.migration.context import attributes, is_fsdp1
from fsdplint.migration.names import WRAPPER_METHODS
from fsdplint.migration.symbols import MEMBERS
from fsdplint.migration.training.inner_names import INNER
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors
from fsdplint.trace import Location

# Attributes that neither a plain module nor a module of another library has.
OWN = WRAPPER_METHODS | {INNER} | {name for name in MEMBERS if "flat_param" in name}

# Attributes that a module of FSDP2 does not have, and that `hasattr` may test.
LACKING = OWN | {"no_sync"}


def missed_use(before: Program, after: Program, fix: Fix) -> tuple[str, Location] | None:
    """A use that remains after a fix, and its place in the program after the fix."""
    for path in sorted({edit.path for edit in fix.edits}):
        old, new = before.sources.get(path), after.sources.get(path)
        if old is None or new is None:
            continue
        wrapped = set(_wrapped_names(before, old))
        for node in attributes(new):
            if node.attr.value not in OWN or _name(new, node.value) not in wrapped:
                continue
            values = after.values(node.value)
            if all(_lacks(value, node.attr.value) for value in values) and not _is_guarded(
                new, node
            ):
                return f"`{new.code(node)}`", new.location(node)
    return None


def _wrapped_names(program: Program, source: Source) -> Iterator[tuple[str, str]]:
    """The names by which functions know models that FSDP1 wraps."""
    for node in attributes(source):
        if any(map(is_fsdp1, program.values(node.value))):
            yield _name(source, node.value)


def _name(source: Source, node: cst.BaseExpression) -> tuple[str, str]:
    return bindings_of(source).scope_at(node).key, source.code(node)


def _lacks(value: Value, name: str) -> bool:
    """Whether a value is a module whose class does not define the attribute."""
    if not isinstance(value, ModuleValue):
        return False
    return value.cls is None or not value.cls.lookup(name)


def _is_guarded(source: Source, node: cst.Attribute) -> bool:
    """Whether a use only runs if `hasattr` finds an attribute that FSDP2 does not have."""
    inner: cst.CSTNode = node
    for outer in ancestors(source, node):
        if isinstance(outer, cst.If | cst.IfExp) and inner is not outer.test:
            if _holds(source, outer.test, node.value, inner is not outer.orelse):
                return True
        elif isinstance(outer, cst.BooleanOperation) and inner is outer.right:
            if _holds(source, outer.left, node.value, isinstance(outer.operator, cst.And)):
                return True
        inner = outer
    return False


def _holds(
    source: Source, test: cst.BaseExpression, owner: cst.BaseExpression, outcome: bool
) -> bool:
    """Whether the outcome of a test proves that an object has an attribute that FSDP2 lacks."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _holds(source, test.expression, owner, not outcome)
    if isinstance(test, cst.BooleanOperation):
        both = (_holds(source, x, owner, outcome) for x in (test.left, test.right))
        return any(both) if isinstance(test.operator, cst.And) == outcome else all(both)
    if not outcome or not isinstance(test, cst.Call) or len(test.args) != 2:
        return False
    if not isinstance(test.func, cst.Name) or test.func.value != "hasattr":
        return False
    name = test.args[1].value
    return (
        isinstance(name, cst.SimpleString)
        and name.evaluated_value in LACKING
        and source.code(test.args[0].value) == source.code(owner)
    )
