"""Tests whether a value is a member of an enum, or a certain one: it becomes the member's name.

A string that names a member counts as the member: `isinstance(value, Enum)` asks for the names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.analysis.isinstance_narrowing import guarded_reads
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import STRATEGIES
from fsdplint.migration.text import atom
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant

MEMBERS = {
    "ShardingStrategy": STRATEGIES,
    "StateDictType": ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"),
    "BackwardPrefetch": ("BACKWARD_PRE", "BACKWARD_POST"),
}
WITHOUT_PARENTHESES = (cst.Arg, cst.Assign, cst.AnnAssign, cst.Return)
_TESTS = (*WITHOUT_PARENTHESES, cst.If, cst.IfExp, cst.While, cst.Assert, cst.BooleanOperation)


@dataclass(frozen=True)
class _Test:
    """`isinstance(value, Enum)`, or with a tuple of classes.

    Attributes:
        value: what is tested.
        enums: the enums of FSDP1 among the classes.
        others: the other classes.
    """

    value: cst.BaseExpression
    enums: list[cst.BaseExpression]
    others: list[cst.BaseExpression]


def guarded_members(migration: Migration) -> Iterator[tuple[Source, cst.CSTNode, str]]:
    """The reads of values that a test has found to be members, with the name of an enum."""
    for source in migration.sources:
        for call in nodes(source):
            test = _test(migration, call) if isinstance(call, cst.Call) else None
            if test is not None and isinstance(test.value, cst.Name | cst.Attribute):
                enum = migration.fsdp1(test.enums[0])
                for read in guarded_reads(source, call, source.code(test.value)):
                    yield source, read, enum


def rewrite(migration: Migration, source: Source, enum: cst.CSTNode) -> bool:
    """Rewrite a test in which an enum is a class; whether it is in one."""
    parent = source.parent(enum)
    if isinstance(parent, cst.Element):
        parent = source.parent(source.parent(parent) or parent)
    call = source.parent(parent) if isinstance(parent, cst.Arg) else None
    if not isinstance(call, cst.Call):
        return False
    test = _test(migration, call)
    if test is None or enum not in test.enums:
        return False
    if test.others and not isinstance(test.value, cst.Name | cst.Attribute):
        return False  # it would be evaluated twice
    if enum is test.enums[0]:
        _write(migration, source, call, test)
    return True


def rewrite_identity(migration: Migration, source: Source, member: cst.CSTNode) -> None:
    """Replace `is` beside a member by `==`: a string that names it may be another object."""
    target = source.parent(member)
    comparison = source.parent(target) if isinstance(target, cst.ComparisonTarget) else target
    if not isinstance(comparison, cst.Comparison):
        return
    left = comparison.left
    for one in comparison.comparisons:
        if member in (left, one.comparator) and isinstance(one.operator, cst.Is | cst.IsNot):
            text = " == " if isinstance(one.operator, cst.Is) else " != "
            begin, end = source.span(left)[1], source.span(one.comparator)[0]
            migration.substitute_span(source, begin, end, text)
        left = one.comparator


def _test(migration: Migration, call: cst.Call) -> _Test | None:
    if not is_constant(call.func, "isinstance") or len(call.args) != 2:
        return None
    classes = call.args[1].value
    every = [classes]
    if isinstance(classes, cst.Tuple):
        every = [one.value for one in classes.elements]
    enums = [one for one in every if migration.fsdp1(one) in MEMBERS]
    if not enums:
        return None
    return _Test(call.args[0].value, enums, [one for one in every if one not in enums])


def _write(migration: Migration, source: Source, call: cst.Call, test: _Test) -> None:
    value = atom(migration.text(source, test.value))
    members = [one for enum in test.enums for one in MEMBERS[migration.fsdp1(enum)]]
    names = ", ".join(string_literal(source, one) for one in members)
    outer = source.parent(call)
    if test.others:
        text = f"{value} in ({names}) or isinstance({value}, {_classes(migration, source, test)})"
        bare = isinstance(outer, (*WITHOUT_PARENTHESES, cst.If, cst.IfExp, cst.While, cst.Assert))
        migration.substitute(source, call, text if bare else f"({text})")
    elif isinstance(outer, cst.UnaryOperation) and isinstance(outer.operator, cst.Not):
        plain = isinstance(source.parent(outer), _TESTS)
        text = f"{value} not in ({names})"
        migration.substitute(source, outer, text if plain else f"({text})")
    else:
        text = f"{value} in ({names})"
        migration.substitute(source, call, text if isinstance(outer, _TESTS) else f"({text})")


def _classes(migration: Migration, source: Source, test: _Test) -> str:
    texts = [migration.text(source, one) for one in test.others]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
