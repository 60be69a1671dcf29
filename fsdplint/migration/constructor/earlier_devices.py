"""Devices that the rewrite of an earlier call in the same block sets already."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.context import Migration
from fsdplint.migration.names import FSDP, PARAMETERS
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend, statement_of

ALWAYS_EVALUATED = cst.Arg | cst.Call | cst.BaseElement | cst.Tuple | cst.List
BINDING = cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.For | cst.CompFor | cst.NamedExpr


def is_set_above(
    migration: Migration, source: Source, at: cst.CSTNode, device: cst.BaseExpression
) -> bool:
    """Whether a call of FSDP1 above, in the same block, has the same device."""
    statement = statement_of(source, at)
    line = source.parent(statement) if statement is not None else None
    block = source.parent(line) if isinstance(line, cst.SimpleStatementLine) else None
    read = {source.code(part) for part in descend(device) if isinstance(part, cst.BaseExpression)}
    is_set = False
    for other in getattr(block, "body", ()):
        if other is line:
            break
        parts = list(descend(other))
        if isinstance(other, cst.SimpleStatementLine):
            is_set = is_set or any(_has_device(migration, source, x, device) for x in parts)
        if any(source.code(target) in read for part in parts for target in _targets(part)):
            is_set = False
    return is_set


def _has_device(
    migration: Migration, source: Source, node: cst.CSTNode, device: cst.BaseExpression
) -> bool:
    """Whether a node is a call of FSDP1 with a device, which its statement makes in any case."""
    if not isinstance(node, cst.Call) or migration.called_name(node) != FSDP:
        return False
    given = arguments(node, PARAMETERS)[0].get("device_id")
    if given is None or source.code(given.value) != source.code(device):
        return False
    for around in ancestors(source, node):
        if not isinstance(around, ALWAYS_EVALUATED):
            return isinstance(around, cst.BaseSmallStatement)
    return False


def _targets(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """What a node gives new values."""
    if isinstance(node, BINDING):
        yield from descend(node.target)
    elif isinstance(node, cst.AsName):
        yield from descend(node.name)
