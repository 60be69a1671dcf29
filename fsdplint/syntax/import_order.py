"""The execution order of imports and of the uses of their names."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from fsdplint.source.positions import code_children
from fsdplint.source.source import Source, once
from fsdplint.syntax.bindings import Bindings, Scope

_BRANCH = (
    *(cst.If, cst.Else, cst.For, cst.While, cst.MatchCase),
    *(cst.ExceptHandler, cst.ExceptStarHandler),
)


def first_run(
    bindings: Bindings, holder: cst.CSTNode, at: cst.CSTNode | None
) -> cst.CSTNode | None:
    """The first node of a function's (or the module's) own code that may run the code at `at`.

    It is `at` itself, or code that reads a name which leads to the inner function around `at`. None
    if no such code exists, or if `at` is outside of the function.
    """
    if at is None:
        return None
    cached = _facts(bindings.source).first
    if (holder, at) not in cached:
        cached[holder, at] = _first_run(bindings, holder, at)
    return cached[holder, at]


def _first_run(bindings: Bindings, holder: cst.CSTNode, at: cst.CSTNode) -> cst.CSTNode | None:
    functions = [
        x
        for x in [at, *ancestors(bindings.source, at)]
        if isinstance(x, cst.FunctionDef | cst.Lambda) and bindings.scopes.get(x) is not None
    ]
    inner: cst.CSTNode | None = None
    for function in functions:
        if function is holder:
            break
        if _runs_inside(bindings, function, at):
            inner = function
    else:
        if not isinstance(holder, cst.Module):
            return None
    if inner is None:
        return at
    if not isinstance(inner, cst.FunctionDef) or inner.decorators:
        return inner
    return _first_mention(bindings, holder, inner)


def _runs_inside(bindings: Bindings, function: cst.CSTNode, at: cst.CSTNode) -> bool:
    """Whether a node is in the body of a function, not in its decorators or defaults."""
    body = getattr(function, "body", None)
    return body is at or body in ancestors(bindings.source, at)


@dataclass
class Reads:
    """The names that a function's (or the module's) own code reads, and those that its inner
    functions read."""

    own: list[cst.Name] = field(default_factory=list)
    inner: dict[str, set[str]] = field(default_factory=dict)


@dataclass
class _Known:
    """Cached results for a file, by function and by node."""

    reads: dict[cst.CSTNode, Reads] = field(default_factory=dict)
    first: dict[tuple[cst.CSTNode, cst.CSTNode], cst.CSTNode | None] = field(default_factory=dict)


@once
def _facts(source: Source) -> _Known:
    return _Known()


def _first_mention(
    bindings: Bindings, holder: cst.CSTNode, inner: cst.FunctionDef
) -> cst.CSTNode | None:
    """The first code of a body that may call an inner function, directly or indirectly."""
    source = bindings.source
    cached = _facts(source).reads
    if holder not in cached:
        cached[holder] = _reads_of(holder)
    reads = cached[holder]
    names = {inner.name.value}
    for parent in ancestors(source, inner):
        if parent is holder:
            break
        if isinstance(parent, cst.FunctionDef | cst.ClassDef):
            names.add(parent.name.value)
    while more := {name for name, inside in reads.inner.items() if inside & names} - names:
        names |= more
    end = source.span(inner)[1]
    calls = [x for x in reads.own if x.value in names and source.span(x)[0] >= end]
    return min(calls, key=lambda node: source.span(node)[0], default=None)


def _reads_of(holder: cst.CSTNode) -> Reads:
    result = Reads()
    # Nodes with the names of the enclosing definitions, and whether one of these is a function.
    stack: list[tuple[cst.CSTNode, tuple[str, ...], bool]] = [
        (child, (), False) for child in code_children(holder)
    ]
    while stack:
        node, names, inside = stack.pop()
        if isinstance(node, cst.Name):
            if not inside:
                result.own.append(node)
            for name in names if inside else ():
                result.inner.setdefault(name, set()).add(node.value)
            continue
        if not isinstance(node, cst.FunctionDef | cst.ClassDef):
            stack.extend((child, names, inside) for child in code_children(node))
            continue
        below = (*names, node.name.value) if not inside else names
        runs_later = inside or isinstance(node, cst.FunctionDef)
        for child in code_children(node):
            if child is node.body:
                stack.append((child, below, runs_later))
            elif child is not node.name:
                stack.append((child, names, inside))
    return result


def has_run_before(
    bindings: Bindings,
    statement: cst.CSTNode,
    scope: Scope,
    at: cst.CSTNode | None,
    local: str = "",
) -> bool:
    """Whether an import statement of a scope has certainly run before the code at a node.

    The body of a `try` counts as executed, because the existing code relies on it too.
    """
    source = bindings.source
    limit = first_run(bindings, scope.node, at)
    if limit is not None and source.span(statement)[1] > source.span(limit)[0]:
        return False
    return no_branch_skips(bindings, statement, scope, at, local)


def no_branch_skips(
    bindings: Bindings,
    statement: cst.CSTNode,
    scope: Scope,
    at: cst.CSTNode | None,
    local: str = "",
) -> bool:
    """Whether every branch runs a statement (or block) of a scope before `at`."""
    source = bindings.source
    around = set(ancestors(source, at)) if at is not None else set()
    child: cst.CSTNode = statement
    for parent in ancestors(source, statement):
        if parent is scope.node:
            return True
        if isinstance(parent, cst.FunctionDef | cst.Lambda):
            return False  # `global x` in a function
        branch = isinstance(parent, _BRANCH)
        if isinstance(parent, cst.Try | cst.TryStar) and child is parent.body:
            # The import may have failed before.
            branch = any(x in around for x in (*parent.handlers, parent.finalbody) if x is not None)
        if branch and child not in around:
            test = bindings.source.parent(parent) if isinstance(parent, cst.Else) else parent
            if test in around or not _both_branches(bindings, parent, scope, local):
                return False
        child = parent
    return False


def _both_branches(bindings: Bindings, parent: cst.CSTNode, scope: Scope, local: str) -> bool:
    """Whether the `if` and the `else` both import the name."""
    source = bindings.source
    test = source.parent(parent) if isinstance(parent, cst.Else) else parent
    if not isinstance(test, cst.If) or not isinstance(test.orelse, cst.Else):
        return False
    branches = set()
    for item in scope.imports:
        if item.local == local:
            around = ancestors(source, item.statement)
            branches.add(next((x for x in around if isinstance(x, _BRANCH)), None))
    return {test, test.orelse} <= branches


def ancestors(source: Source, node: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes around a node, innermost first."""
    result = []
    parent = source.parent(node)
    while parent is not None:
        result.append(parent)
        parent = source.parent(parent)
    return result


def function_of(bindings: Bindings, node: cst.CSTNode) -> cst.CSTNode:
    """The function (or lambda) whose body holds a node, or the module."""
    scope: Scope | None = bindings.scope_at(node)
    while scope is not None and scope.kind in ("class", "comprehension"):
        scope = scope.parent
    return scope.node if scope is not None else bindings.module.node
