"""The device that a model was moved to, for programs that set no current device.

FSDP1 shards a model on the device of its parameters. FSDP2 shards it on the current device, which has
to be the same one: `model.to(rank)` before `FSDP(model)` needs `torch.cuda.set_device(rank)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.constructor import device
from fsdplint.migration.context import Migration
from fsdplint.migration.names import PARAMETERS
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend, statement_of

MOVES = ("to", "cuda")


def device_of_model(
    migration: Migration, source: Source, call: cst.Call
) -> cst.BaseExpression | None:
    """The rank's own GPU to which the code moves the model of `FSDP(model)`; None if unknown.

    The move is the argument itself, or stands before the call in its block or in a block around it.
    """
    module = arguments(call, PARAMETERS)[0].get("module")
    if module is None:
        return None
    moved = _moved_to(module.value) or _moved_before(source, call, module.value)
    if moved is None or device.kind(migration, source, moved) not in ("cuda", "either"):
        return None
    fixed = _is_fixed(migration, source, moved)
    return moved if fixed and _has_index(migration, moved) else None


def _moved_to(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The device in `model.to(device)` or `model.cuda(device)`."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return None
    if node.func.attr.value not in MOVES or not node.args:
        return None
    named, rest = arguments(node, ("device",))
    return None if rest or "device" not in named else named["device"].value


def _moved_before(
    source: Source, call: cst.Call, model: cst.BaseExpression
) -> cst.BaseExpression | None:
    """The device of the last move of a model before a call; None if the model is rebound after it."""
    if not isinstance(model, cst.Name | cst.Attribute):
        return None
    text = source.code(model)
    for statement in _before(source, call):
        for part in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            if _binds(source, part, text):
                return _moved_to(part.value) if isinstance(part, cst.Assign) else None
            if isinstance(part, cst.Expr) and isinstance(part.value, cst.Call):
                func = part.value.func
                if isinstance(func, cst.Attribute) and source.code(func.value) == text:
                    found = _moved_to(part.value)
                    if found is not None:
                        return found
        if isinstance(statement, cst.BaseCompoundStatement) and any(
            _binds(source, part, text) for part in descend(statement)
        ):
            return None
    return None


def _before(source: Source, node: cst.CSTNode) -> Iterator[cst.BaseStatement]:
    """The statements before a node in its function, in its block and the blocks around it, last first."""
    home = function_around(source, node)
    current: cst.CSTNode | None = source.parent(statement_of(source, node))
    while current is not None and current is not home:
        parent = source.parent(current)
        statements: Sequence[cst.CSTNode] = ()
        if isinstance(parent, cst.IndentedBlock | cst.Module):
            statements = parent.body
        if current in statements:
            number = list(statements).index(current)
            for statement in reversed(statements[:number]):
                if isinstance(statement, cst.SimpleStatementLine | cst.BaseCompoundStatement):
                    yield statement
        current = parent


def _binds(source: Source, node: cst.CSTNode, text: str) -> bool:
    """Whether a statement assigns the variable or attribute of this text, perhaps among others."""
    if not isinstance(node, cst.Assign | cst.AnnAssign | cst.AugAssign | cst.NamedExpr | cst.For):
        return False
    targets = (
        [one.target for one in node.targets] if isinstance(node, cst.Assign) else [node.target]
    )
    return any(
        source.code(part) == text
        for target in targets
        for part in (target, *descend(target))
        if isinstance(part, cst.Name | cst.Attribute)
    )


def _is_fixed(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression has one value in its function: names that are bound once."""
    for part in (node, *descend(node)):
        if isinstance(part, cst.Call) and migration.symbol(part.func) != "torch.device":
            return False
        if isinstance(part, cst.Await | cst.NamedExpr):
            return False
        if isinstance(part, cst.Name) and not _is_bound_once(source, part):
            return False
    return True


def _is_bound_once(source: Source, name: cst.Name) -> bool:
    parent = source.parent(name)
    if isinstance(parent, cst.Attribute) and parent.attr is name:
        return True
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(name), name.value)
    if scope is None:
        return False
    found = definitions(source, name)
    if found is not None:
        return len(found) == 1
    return len(list(scope.others.get(name.value, ()))) == 1


def _has_index(migration: Migration, node: cst.BaseExpression) -> bool:
    values = migration.values(node)
    return bool(values) and not any(device.is_without_index(value) for value in values)
