"""Policies, configs and members of enums in variables that nothing reads: the assignments go."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import definitions, home_of, reads
from fsdplint.migration.context import Migration
from fsdplint.migration.direct_form.meaning import Meanings
from fsdplint.migration.names import FSDP
from fsdplint.source.source import Source
from fsdplint.syntax.layout import statement_of

TITLE = "Remove a value that nothing reads"


def delete(migration: Migration, source: Source, node: cst.CSTNode, name: str) -> None:
    """Delete the assignment that a reference to FSDP1 stands in, if it has no effect."""
    if name.partition(".")[0] == FSDP or node in migration.consumed:
        return
    statement = statement_of(source, node)
    target, value = _assignment_parts(statement)
    if target is None or value is None or not _is_unread(migration, source, target):
        return
    if not Meanings(migration, source).is_inert(value):
        return
    migration.unread.update(part for part in source.descend(statement) if part in migration.names)
    migration.account_for(source, statement)
    migration.delete_statement(source, statement, comments=False)  # they are about its arguments
    migration.step(source, value, TITLE)


def _assignment_parts(statement: cst.CSTNode) -> tuple[cst.Name | None, cst.BaseExpression | None]:
    """The only target of an assignment, and its value."""
    if isinstance(statement, cst.AnnAssign):
        target, value = statement.target, statement.value
    elif isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0].target, statement.value
    else:
        return None, None
    return (target, value) if isinstance(target, cst.Name) else (None, None)


def _is_unread(migration: Migration, source: Source, target: cst.Name) -> bool:
    """Whether no code reads a variable. Classes and modules give theirs to other files."""
    home = home_of(source, target)
    if not isinstance(home, cst.FunctionDef) or not definitions(source, target):
        return False
    return not reads(source, home, target.value)
