"""Policies that no constructor call uses: those in functions that nothing calls are rewritten."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import (
    is_exported,
    is_mentioned,
    outer_function,
)
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import POLICY_USE_UNSEEN
from fsdplint.migration.constructor.called_policies import called_policy
from fsdplint.migration.constructor.policy_reader import convert
from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.item_reads import read_key, string_value

KEYS = ("auto_wrap_policy",)
POLICIES = {
    "ModuleWrapPolicy",
    "transformer_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "lambda_auto_wrap_policy",
    "_or_policy",
    "_module_wrap_policy",
}


def rewrite(migration: Migration) -> None:
    """Rewrite the policies that no constructor call has consumed."""
    for source in migration.sources:
        for node in list(nodes(source)):
            name = migration.fsdp1(node)
            if name in POLICIES and node not in migration.consumed:
                _rewrite_policy(migration, source, node)


def _rewrite_policy(migration: Migration, source: Source, node: cst.CSTNode) -> None:
    policy = _policy_around(migration, source, node)
    if isinstance(policy, cst.BaseExpression) and _is_overwritten_item(migration, source, policy):
        migration.account_for(source, policy)
        migration.substitute(source, policy, "None")
        return
    if not isinstance(policy, cst.BaseExpression) or policy is node:
        return
    called = called_policy(migration)
    if called is not None and called.node is policy:
        migration.blockers.append(called)
        return
    function = outer_function(source, policy)
    sources = migration.program.sources.values()
    named = function is None or is_mentioned(sources, function)
    if named and not _is_idle(migration, policy):
        migration.blockers.append(Blocked(source, policy, POLICY_USE_UNSEEN()))
        return
    by_size = migration.fsdp1(node).startswith("size")
    exported = function is not None and is_exported(sources, function)
    removable = not named and not exported
    if by_size and removable and function is not None and _only_returns(function, policy):
        migration.account_for(source, function)
        migration.delete_statement(source, function)
        migration.step(source, function, "Remove a function that nothing uses")
        return
    with migration.collecting():
        convert(migration, source, policy, sharder=by_size)


def _is_overwritten_item(migration: Migration, source: Source, policy: cst.BaseExpression) -> bool:
    """Whether a policy is an item of a dict, and each read of its key gives None in all runs."""
    item = source.parent(policy)
    whole = source.parent(item) if item is not None else None
    key = ""
    if (
        isinstance(item, cst.Arg)
        and isinstance(whole, cst.Call)
        and is_constant(whole.func, "dict")
    ):
        key = item.keyword.value if item.keyword is not None else ""
    elif isinstance(item, cst.DictElement) and item.value is policy:
        key = string_value(item.key)
    if key not in KEYS:
        return False
    found = [
        read
        for other in migration.program.sources.values()
        for read in nodes(other)
        if _reads_key(other, read, key)
    ]
    return bool(found) and migration.lost_reads.issuperset(found)


def _reads_key(source: Source, node: cst.CSTNode, key: str) -> bool:
    """Whether an expression takes the item of this key out of some dict."""
    is_target = isinstance(source.parent(node), cst.AssignTarget | cst.Del)
    return not is_target and read_key(node) == key


def _only_returns(function: cst.FunctionDef | cst.ClassDef, policy: cst.BaseExpression) -> bool:
    """Whether a function does nothing but make a policy and return it."""
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


def _is_idle(migration: Migration, policy: cst.BaseExpression) -> bool:
    """Whether variables hold a policy, and no call, attribute or undecided statement uses it."""
    found = {
        node
        for node in migration.program.evaluations
        if node is not policy
        and any(
            v.created_at is not None and v.created_at.node is policy for v in migration.values(node)
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
            if node in migration.undecided_nodes:
                return False
    return seen


def _policy_around(migration: Migration, source: Source, node: cst.CSTNode) -> cst.CSTNode:
    """The policy that a name is a part of, such as the call of `partial` around it."""
    policy = node
    for parent in ancestors(source, node):
        if isinstance(parent, cst.Call):
            if parent.func is node or migration.symbol(parent.func) == "functools.partial":
                policy = parent
        elif not isinstance(parent, cst.Arg | cst.Element | cst.List):
            break
    return policy
