"""Variables that only FSDP1's constructor has read: their assignments go with the argument."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.migration.analysis.variables import definitions, home_of, reads
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source

# Functions without arguments whose names say that they only ask.
_QUESTION = re.compile(r"(?:.*\.)?(is_\w+|\w+_(available|enabled|initialized))")
_DEVICE = re.compile(r"torch\.\w+\.current_device")


def drop(migration: Migration, source: Source, name: cst.Name) -> None:
    """Delete the assignments of a variable whose only reader goes, if nothing else is lost.

    An `if` that does nothing else than choose the variable's value goes with them.
    """
    home = home_of(source, name)
    found = definitions(source, name)
    if home is None or not found or len(reads(source, home, name.value)) != 1:
        return
    if home is source.tree and _known_elsewhere(migration, source, name.value):
        return
    if not all(_pure(migration, item.value) for item in found):
        return
    statements: set[cst.CSTNode] = {item.statement for item in found}
    blocks: dict[cst.If, None] = {}
    for statement in statements:
        block = _emptied(migration, source, statement, statements)
        if block is None:
            continue
        if not _goes(migration, block, statements):
            return  # it would leave a branch that does nothing
        blocks.setdefault(block)
    for item in found:
        migration.account_for(source, item.value)
    for whole in blocks:
        migration.delete_statement(source, whole)
    for statement in statements:
        if not any(_within(source, statement, whole) for whole in blocks):
            migration.delete_statement(source, statement)


def _known_elsewhere(migration: Migration, source: Source, name: str) -> bool:
    """Whether another file may import a variable of this one."""
    others = migration.program.sources.values()
    return any(s is not source and re.search(rf"\b{name}\b", s.text) for s in others)


def _emptied(
    migration: Migration, source: Source, statement: cst.CSTNode, gone: set[cst.CSTNode]
) -> cst.If | None:
    """The outermost `if` around a statement that goes, of which a branch is left with nothing."""
    result = None
    line = source.parent(statement)
    suite = source.parent(line) if line is not None else None
    while isinstance(suite, cst.IndentedBlock):
        block = source.parent(suite)
        if not all(_part_goes(migration, part, gone) for part in suite.body):
            break
        while isinstance(block, cst.Else) or (
            isinstance(block, cst.If) and isinstance(source.parent(block), cst.If)
        ):
            block = source.parent(block)  # up to the `if` that an `elif` or `else` belongs to
        if not isinstance(block, cst.If):
            break
        result = block
        suite = source.parent(block)
    return result


def _goes(migration: Migration, block: cst.If, gone: set[cst.CSTNode]) -> bool:
    """Whether an `if` does nothing besides what goes."""
    if not _asks(migration, block.test) or not _suite_goes(migration, block.body, gone):
        return False
    if isinstance(block.orelse, cst.If):
        return _goes(migration, block.orelse, gone)
    return block.orelse is None or _suite_goes(migration, block.orelse.body, gone)


def _suite_goes(migration: Migration, suite: cst.BaseSuite, gone: set[cst.CSTNode]) -> bool:
    return isinstance(suite, cst.IndentedBlock) and all(
        _part_goes(migration, part, gone) for part in suite.body
    )


def _part_goes(migration: Migration, part: cst.CSTNode, gone: set[cst.CSTNode]) -> bool:
    if isinstance(part, cst.If):
        return _goes(migration, part, gone)
    return isinstance(part, cst.SimpleStatementLine) and all(x in gone for x in part.body)


def _within(source: Source, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
    current: cst.CSTNode | None = node
    while current is not None and current is not outer:
        current = source.parent(current)
    return current is outer


def _asks(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether evaluating a condition does nothing besides."""
    if isinstance(node, cst.UnaryOperation):
        return _asks(migration, node.expression)
    if isinstance(node, cst.BooleanOperation):
        return _asks(migration, node.left) and _asks(migration, node.right)
    if isinstance(node, cst.Comparison):
        return _asks(migration, node.left) and all(
            _asks(migration, item.comparator) for item in node.comparisons
        )
    if isinstance(node, cst.Attribute):
        return _asks(migration, node.value)
    if isinstance(node, cst.Call):
        name = migration.symbol(node.func)
        if not name and isinstance(node.func, cst.Name | cst.Attribute):
            last = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
            name = last.value
        return not node.args and _QUESTION.fullmatch(name) is not None
    return isinstance(node, cst.Name | cst.BaseNumber | cst.SimpleString)


def _pure(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether an expression may go: a constant, a name of FSDP1, the current device, a setting of
    the program or of its environment.
    """
    if migration.fsdp1(node) or migration.called_name(node) == "CPUOffload":
        return True
    if isinstance(node, cst.Lambda):
        return True
    if isinstance(node, cst.IfExp):
        return _pure(migration, node.body) and _pure(migration, node.orelse)
    if isinstance(node, cst.Call):
        if isinstance(node.func, cst.Name) and node.func.value == "int" and len(node.args) == 1:
            node = node.args[0].value
        name = migration.symbol(node.func) if isinstance(node, cst.Call) else ""
        if _DEVICE.fullmatch(name) or name in ("os.environ.get", "os.getenv"):
            return True
    return _asks(migration, node)
