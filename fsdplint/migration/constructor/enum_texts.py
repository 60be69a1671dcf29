"""Code that compares or splits `str(member)`, such as "ShardingStrategy.FULL_SHARD"; it becomes the name."""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source


def rewrite(migration: Migration, source: Source, call: cst.Call, enum: str) -> None:
    """Rewrite what a program does with `str(member)`, where it has the name of the enum."""
    place = source.parent(call)
    if isinstance(place, cst.Comparison):
        for one in place.comparisons:
            _drop_enum(migration, source, one.comparator, enum)
    elif isinstance(place, cst.ComparisonTarget):
        comparison = source.parent(place)
        if isinstance(comparison, cst.Comparison):
            _drop_enum(migration, source, comparison.left, enum)
    elif isinstance(place, cst.Attribute) and place.attr.value == "split":
        _drop_split(migration, source, call, source.parent(place))


def _drop_enum(migration: Migration, source: Source, node: cst.BaseExpression, enum: str) -> None:
    """Leave the name of a member in a constant string, or in several."""
    parts = [node]
    if isinstance(node, cst.Tuple | cst.List | cst.Set):
        parts = [one.value for one in node.elements]
    for part in parts:
        if isinstance(part, cst.SimpleString):
            text = str(part.evaluated_value)
            if text.startswith(f"{enum}."):
                name = string_literal(source, text.removeprefix(f"{enum}."))
                migration.substitute(source, part, name)


def _drop_split(
    migration: Migration, source: Source, call: cst.Call, split: cst.CSTNode | None
) -> None:
    """Replace `str(member).split(".")[1]` by the member."""
    item = source.parent(split) if isinstance(split, cst.Call) else None
    if not isinstance(item, cst.Subscript) or item.value is not split or len(item.slice) != 1:
        return
    index = item.slice[0].slice
    if isinstance(index, cst.Index) and source.code(index.value) == "1":
        migration.substitute(source, item, migration.text(source, call.args[0].value))
