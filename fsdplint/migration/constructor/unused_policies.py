"""Policies that nothing uses: a variable goes, a function that nobody calls is rewritten in its
place.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import (
    ancestors,
    home_of,
    is_mentioned,
    outer_function,
    reads,
)
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import POLICY_USE_UNSEEN
from fsdplint.migration.constructor.called_policies import called_policy
from fsdplint.migration.constructor.policy import convert
from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import Source
from fsdplint.syntax.layout import statement_of

POLICIES = {
    "ModuleWrapPolicy",
    "transformer_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "lambda_auto_wrap_policy",
    "_or_policy",
    "_module_wrap_policy",
}


def rewrite(migration: Migration) -> None:
    """Account for the policies that no constructor call has taken."""
    for source in migration.sources:
        for node in list(nodes(source)):
            name = migration.fsdp1(node)
            if name in POLICIES and node not in migration.consumed:
                _policy(migration, source, node)


def _policy(migration: Migration, source: Source, node: cst.CSTNode) -> None:
    whole = _outermost(migration, source, node)
    statement = statement_of(source, whole)
    if isinstance(statement, cst.Assign) and statement.value is whole:
        target = statement.targets[0].target
        home = home_of(source, target) if isinstance(target, cst.Name) else None
        if home is not None and isinstance(target, cst.Name) and len(statement.targets) == 1:
            if home is not source.tree and not reads(source, home, target.value):
                migration.account_for(source, whole)
                migration.delete_statement(source, whole)
                migration.step(source, whole, "Take away a policy that nothing uses")
                return
    if not isinstance(whole, cst.BaseExpression) or whole is node:
        return
    called = called_policy(migration)
    if called is not None and called.node is whole:
        migration.blockers.append(called)
        return
    function = outer_function(source, whole)
    named = function is None or is_mentioned(migration.program.sources.values(), function)
    if named and not _is_idle(migration, whole):
        reason = POLICY_USE_UNSEEN()
        migration.blockers.append(Blocked(source, whole, reason))
        return
    by_size = migration.fsdp1(node).startswith("size")
    if by_size and not named and function is not None and _only_makes(function, whole):
        migration.account_for(source, function)
        migration.delete_statement(source, function)
        migration.step(source, function, "Take away a function that nothing uses")
        return
    try:
        convert(migration, source, whole, sharder=by_size)
    except Blocked as blocked:
        migration.blockers.append(blocked)


def _only_makes(function: cst.FunctionDef | cst.ClassDef, policy: cst.BaseExpression) -> bool:
    """Whether a function makes a policy, returns it and does nothing else."""
    if not isinstance(function, cst.FunctionDef) or not isinstance(
        function.body, cst.IndentedBlock
    ):
        return False
    if function.decorators or any(line.comment for line in function.leading_lines):
        return False
    for line in function.body.body:
        if not isinstance(line, cst.SimpleStatementLine):
            return False
        for part in line.body:
            if isinstance(part, cst.Assign):
                if part.value is not policy:
                    return False
            elif isinstance(part, cst.Return):
                if part.value is not policy and not isinstance(part.value, cst.Name):
                    return False
            elif not isinstance(part, cst.Expr) or not isinstance(part.value, cst.SimpleString):
                return False
    return True


def _is_idle(migration: Migration, whole: cst.BaseExpression) -> bool:
    """Whether a policy is handed on, and nothing is ever done with it."""
    found = {
        node
        for node in migration.program.evaluations
        if node is not whole
        and any(
            v.created_at is not None and v.created_at.node is whole for v in migration.values(node)
        )
    }
    seen = False
    for source in migration.program.sources.values() if found else ():
        for node in source.descend(source.tree):
            if node not in found or not isinstance(node, cst.Name | cst.Attribute | cst.Call):
                continue
            seen = True
            parent = source.parent(node)
            if isinstance(parent, cst.Arg | cst.Attribute | cst.Call):
                return False
    return seen


def _outermost(migration: Migration, source: Source, node: cst.CSTNode) -> cst.CSTNode:
    """The whole policy that a name is a part of: the call of `partial` around it."""
    whole = node
    for parent in ancestors(source, node):
        if isinstance(parent, cst.Call):
            if parent.func is node or migration.symbol(parent.func) == "functools.partial":
                whole = parent
        elif not isinstance(parent, cst.Arg | cst.Element | cst.List):
            break
    return whole
