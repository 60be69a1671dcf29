"""Dotted names in code: the names that a node reads and the names that it binds."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.source.positions import code_children
from fsdplint.source.source import Source

_BINDERS = (
    cst.AssignTarget,
    cst.AnnAssign,
    cst.AugAssign,
    cst.NamedExpr,
    cst.For,
    cst.CompFor,
)
_LEAVES = {cst.Return, cst.Raise, cst.Break, cst.Continue}


def dotted_names(node: cst.CSTNode) -> Iterator[cst.Name | cst.Attribute]:
    """The longest dotted names (`self.model.parameters`) in a node, without keywords of calls."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, cst.Name) or (
            isinstance(current, cst.Attribute) and _is_dotted(current)
        ):
            yield current
        elif isinstance(current, cst.Attribute | cst.Arg):
            stack.append(current.value)
        else:
            stack.extend(reversed(current.children))


def _is_dotted(node: cst.CSTNode) -> bool:
    while isinstance(node, cst.Attribute):
        node = node.value
    return isinstance(node, cst.Name)


def dotted_name(node: cst.CSTNode) -> str:
    """The text of a name or a chain of attributes, without whitespace; "" for anything else."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return ""
    parts.append(node.value)
    return ".".join(reversed(parts))


def mentions(node: cst.CSTNode, names: set[str]) -> bool:
    """Whether the node contains one of the (dotted) names, or an attribute of one."""
    return any(
        part_of(path, name) for path in map(dotted_name, dotted_names(node)) for name in names
    )


def bound_by(statement: cst.CSTNode) -> set[str]:
    """The dotted names that a statement assigns, nested functions included."""
    targets: list[cst.CSTNode] = []
    stack: list[cst.CSTNode] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, _BINDERS):
            targets.append(node.target)
        elif isinstance(node, cst.AsName):
            targets.append(node.name)
        stack.extend(code_children(node))
    return {dotted_name(name) for target in targets for name in dotted_names(target)}


def names_in_scope(source: Source, node: cst.CSTNode) -> set[str]:
    """The names in use in the function (or module) around a node, so that a new one is free.

    Names that nested functions bind themselves do not count.
    """
    scope: cst.CSTNode | None = node
    while scope is not None and not isinstance(scope, cst.FunctionDef):
        scope = source.parent(scope)
    top = scope if scope is not None else source.tree
    names: set[str] = set()
    stack = code_children(top)
    while stack:
        current = stack.pop()
        if isinstance(current, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            names |= {dotted_name(name).split(".")[0] for name in dotted_names(current)} - bound_by(
                current
            )
        elif isinstance(current, cst.Name):
            names.add(current.value)
        else:
            stack.extend(code_children(current))
    return names


def assigned_names(statement: cst.CSTNode) -> set[str] | None:
    """The names that a single assignment on its line binds; None for any other statement."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    if not isinstance(statement.body[0], cst.Assign | cst.AnnAssign):
        return None
    return bound_by(statement)


def leaves(statement: cst.CSTNode, *, by_error: bool = True) -> bool:
    """Whether the statement may leave its block early. by_error: whether `raise` counts."""
    if type(statement) in _LEAVES and (by_error or type(statement) is not cst.Raise):
        return True
    return any(leaves(one, by_error=by_error) for one in code_children(statement))


def part_of(path: str, name: str) -> bool:
    """Whether a dotted path is the name or an attribute of it."""
    return path == name or path.startswith(name + ".")
