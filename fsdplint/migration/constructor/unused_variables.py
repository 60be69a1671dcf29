"""Variables that only FSDP1's constructor reads: their assignments are deleted with the argument."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.fixes.syntax import is_within
from fsdplint.migration.analysis.variables import definitions, home_of, reads
from fsdplint.migration.constructor.paragraphs import delete_comments_of
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import elements

# Functions without arguments that only return a state, judged by their names.
_QUERY = re.compile(r"(?:.*\.)?(is_\w+|\w+_(available|enabled|initialized))")
_DEVICE = re.compile(r"torch\.\w+\.current_device")


def delete_variable_of(migration: Migration, source: Source, value: cst.BaseExpression) -> None:
    """Account for an argument that FSDP2 does not need, and delete its variable if possible."""
    migration.account_for(source, value)
    if isinstance(value, cst.Name):
        delete_variable(migration, source, value)
    else:
        delete_table(migration, source, value)


def delete_variable(migration: Migration, source: Source, name: cst.Name) -> None:
    """Delete the assignments of a variable that loses its last reader, if they do nothing else.

    An `if` that only selects the variable's value is deleted with them.
    """
    home = home_of(source, name)
    found = definitions(source, name)
    migration.lost_reads.add(name)
    if home is None or not found:
        return
    if not migration.lost_reads.issuperset(reads(source, home, name.value)):
        return
    if home is source.tree and _known_elsewhere(migration, source, name.value):
        return
    if not all(_is_droppable(migration, item.value) for item in found):
        return
    statements: set[cst.CSTNode] = {item.statement for item in found}
    blocks: dict[cst.If, None] = {}
    for statement in statements:
        block = _emptied_if(migration, source, statement, statements)
        if block is None:
            continue
        if not _is_deleted(migration, block, statements):
            return  # a branch would do nothing
        blocks.setdefault(block)
    for item in found:
        migration.account_for(source, item.value)
        delete_table(migration, source, item.value)
    for block in blocks:
        migration.delete_statement(source, block)
    for statement in statements:
        if not any(is_within(source, statement, block) for block in blocks):
            migration.delete_statement(source, statement, comments=False)
            delete_comments_of(migration, source, statement)


def delete_table(migration: Migration, source: Source, value: cst.BaseExpression) -> None:
    """Delete the table in which a deleted value looks up a setting, if nothing else reads it."""
    if isinstance(value, cst.Subscript) and isinstance(value.value, cst.Name):
        delete_variable(migration, source, value.value)


def _known_elsewhere(migration: Migration, source: Source, name: str) -> bool:
    """Whether another file may import a variable of this one."""
    others = migration.program.sources.values()
    return any(s is not source and re.search(rf"\b{name}\b", s.text) for s in others)


def _emptied_if(
    migration: Migration, source: Source, statement: cst.CSTNode, deletions: set[cst.CSTNode]
) -> cst.If | None:
    """The outermost `if` around a deleted statement that keeps no code in a branch."""
    result = None
    line = source.parent(statement)
    suite = source.parent(line) if line is not None else None
    while isinstance(suite, cst.IndentedBlock):
        block = source.parent(suite)
        if not all(_part_is_deleted(migration, part, deletions) for part in suite.body):
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


def _is_deleted(migration: Migration, block: cst.If, deletions: set[cst.CSTNode]) -> bool:
    """Whether an `if` does nothing but the deleted statements."""
    if not is_query(migration, block.test) or not _suite_is_deleted(
        migration, block.body, deletions
    ):
        return False
    if isinstance(block.orelse, cst.If):
        return _is_deleted(migration, block.orelse, deletions)
    return block.orelse is None or _suite_is_deleted(migration, block.orelse.body, deletions)


def _suite_is_deleted(
    migration: Migration, suite: cst.BaseSuite, deletions: set[cst.CSTNode]
) -> bool:
    return isinstance(suite, cst.IndentedBlock) and all(
        _part_is_deleted(migration, part, deletions) for part in suite.body
    )


def _part_is_deleted(migration: Migration, part: cst.CSTNode, deletions: set[cst.CSTNode]) -> bool:
    if isinstance(part, cst.If):
        return _is_deleted(migration, part, deletions)
    return isinstance(part, cst.SimpleStatementLine) and all(x in deletions for x in part.body)


def is_query(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether the evaluation of a condition has no effect."""
    if isinstance(node, cst.UnaryOperation):
        return is_query(migration, node.expression)
    if isinstance(node, cst.BooleanOperation):
        return is_query(migration, node.left) and is_query(migration, node.right)
    if isinstance(node, cst.Comparison):
        return is_query(migration, node.left) and all(
            is_query(migration, item.comparator) for item in node.comparisons
        )
    if isinstance(node, cst.Attribute):
        return is_query(migration, node.value)
    if isinstance(node, cst.Call):
        name = migration.symbol(node.func).removeprefix("builtins.")
        if not name and isinstance(node.func, cst.Name | cst.Attribute):
            last = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
            name = last.value
        if name in ("hasattr", "isinstance"):
            return all(is_query(migration, arg.value) for arg in node.args)
        return not node.args and _QUERY.fullmatch(name) is not None
    return isinstance(node, cst.Name | cst.BaseNumber | cst.SimpleString)


def _is_droppable(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether an expression may be deleted: a constant, a name of FSDP1, the current device, or a
    setting of the program or of its environment.
    """
    if migration.fsdp1(node) or migration.called_name(node) == "CPUOffload":
        return True
    if isinstance(node, cst.Lambda) or elements(node) == []:
        return True
    if isinstance(node, cst.Dict):
        return all(
            isinstance(one, cst.DictElement)
            and _is_droppable(migration, one.key)
            and _is_droppable(migration, one.value)
            for one in node.elements
        )
    if isinstance(node, cst.Subscript):
        index = node.slice[0].slice if len(node.slice) == 1 else None
        return (
            isinstance(node.value, cst.Name)
            and isinstance(index, cst.Index)
            and is_query(migration, index.value)
        )
    if isinstance(node, cst.IfExp):
        return _is_droppable(migration, node.body) and _is_droppable(migration, node.orelse)
    if isinstance(node, cst.Call):
        if isinstance(node.func, cst.Name) and node.func.value == "int" and len(node.args) == 1:
            node = node.args[0].value
        name = migration.symbol(node.func) if isinstance(node, cst.Call) else ""
        if _DEVICE.fullmatch(name) or name in ("os.environ.get", "os.getenv"):
            return True
    return is_query(migration, node)
