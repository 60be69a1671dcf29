"""Variables of a file: the places that assign and read a name within its function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import Function, ancestors, function_around
from fsdplint.syntax.layout import descend
from fsdplint.syntax.state_names import last_name


@dataclass(frozen=True)
class Definition:
    """`name = value` as a statement of its own."""

    statement: cst.Assign | cst.AnnAssign
    value: cst.BaseExpression


def home_of(source: Source, name: cst.Name) -> cst.CSTNode | None:
    """The function (or tree) that binds a name at this place; None if none does."""
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(name), name.value)
    return scope.node if scope is not None else None


def definitions(source: Source, name: cst.Name) -> list[Definition] | None:
    """All assignments of a variable; None if it also gets a value in another way."""
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(name), name.value)
    if scope is None or any(item.local == name.value for item in scope.imports):
        return None
    result = []
    for target in scope.others.get(name.value, ()):
        found = definition_at(source, target)
        if found is None:
            return None
        result.append(found)
    return result


def definition_at(source: Source, target: cst.CSTNode) -> Definition | None:
    """The assignment whose only target is a node; None if there is none."""
    parent = source.parent(target)
    if isinstance(parent, cst.AnnAssign) and parent.value is not None:
        return Definition(parent, parent.value)
    if isinstance(parent, cst.AssignTarget):
        statement = source.parent(parent)
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            return Definition(statement, statement.value)
    return None


def reads(source: Source, home: cst.CSTNode, name: str) -> list[cst.Name]:
    """The places inside a function (or tree) that read a name, including shadowed names."""
    result = []
    for node in source.descend(home):
        if isinstance(node, cst.Name) and node.value == name and not _is_binding(source, node):
            result.append(node)
    return sorted(result, key=lambda node: source.span(node))


def _is_binding(source: Source, node: cst.Name) -> bool:
    parent = source.parent(node)
    if isinstance(parent, cst.AssignTarget | cst.Param | cst.ImportAlias | cst.AsName):
        return True
    if isinstance(parent, cst.Arg):
        return parent.keyword is node
    if isinstance(parent, cst.Attribute):
        return parent.attr is node
    if isinstance(parent, cst.AnnAssign):
        return parent.target is node
    return isinstance(parent, cst.FunctionDef | cst.ClassDef) and parent.name is node


def arm_of_wrapping(source: Source, node: cst.CSTNode, calls: Sequence[cst.CSTNode]) -> bool | None:
    """Whether a node is in the same arm of `if use_fsdp:` as some calls (True), or in the other one.

    None if no variable of its function decides both.
    """
    function = function_around(source, node)
    if not calls or any(function_around(source, call) is not function for call in calls):
        return None
    ours = _flags(source, node)
    theirs = [_flags(source, call) for call in calls]
    for name, taken in ours.items():
        if all(name in flags and flags[name] != taken for flags in theirs):
            return False
        if all(flags.get(name) == taken for flags in theirs):
            return True
    return None


def _flags(source: Source, node: cst.CSTNode) -> dict[str, bool]:
    """The variables with one assignment that decide whether a node runs, and their values there."""
    flags: dict[str, bool] = {}
    inner = node
    for parent in ancestors(source, node):
        if isinstance(parent, Function):
            break
        if isinstance(parent, cst.If) and isinstance(parent.test, cst.Name):
            found = definitions(source, parent.test)
            if inner is not parent.test and found is not None and len(found) == 1:
                flags.setdefault(parent.test.value, inner is parent.body)
        inner = parent
    return flags


def top_level(source: Source, node: cst.CSTNode) -> cst.CSTNode:
    """The statement of the file's top level that contains a node."""
    last = node
    for parent in ancestors(source, node):
        if parent is source.tree:
            break
        last = parent
    return last


def bound_names(source: Source, node: cst.CSTNode) -> set[str]:
    """Every name that the function around a node (and the file) binds or reads."""
    names = {
        n.value for n in source.descend(function_around(source, node)) if isinstance(n, cst.Name)
    }
    for scope in bindings_of(source).scope_at(node).chain():
        names.update(scope.others)
        names.update(item.local for item in scope.imports)
    return names


def fresh(source: Source, node: cst.CSTNode, *wanted: str) -> str:
    """The first of the names that is unused at a node, or the last one with a number."""
    taken = bound_names(source, node)
    for name in wanted:
        if name not in taken:
            return name
    number = 2
    while f"{wanted[-1]}_{number}" in taken:
        number += 1
    return f"{wanted[-1]}_{number}"


def function_name(source: Source, wanted: str) -> str:
    """The name of a new function of a file: the wanted one, or one that no scope of it binds."""
    taken: set[str] = set()
    for scope in bindings_of(source).scopes.values():
        if scope.kind != "class":
            taken.update(scope.others, (item.local for item in scope.imports))
    several = (f"fsdp_{wanted}_{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (wanted, f"fsdp_{wanted}", *several) if name not in taken)


def outer_function(source: Source, node: cst.CSTNode) -> cst.FunctionDef | cst.ClassDef | None:
    """The outermost function or class that contains a node."""
    outer = None
    for parent in ancestors(source, node):
        if isinstance(parent, cst.FunctionDef | cst.ClassDef):
            outer = parent
    return outer


def is_mentioned(sources: Iterable[Source], function: cst.FunctionDef | cst.ClassDef) -> bool:
    """Whether code other than its own body and imports mentions a function."""
    name = function.name.value
    own = set(descend(function))
    for source in sources:
        if name not in source.text:
            continue
        for node in source.descend(source.tree):
            if isinstance(node, cst.Name) and node.value == name and node not in own:
                if not isinstance(source.parent(node), cst.ImportAlias):
                    return True
    return False


def is_exported(sources: Iterable[Source], function: cst.FunctionDef | cst.ClassDef) -> bool:
    """Whether an import or `__all__` names a function, so that other code may use it."""
    name = function.name.value
    for source in sources:
        if name not in source.text:
            continue
        for node in source.descend(source.tree):
            if isinstance(node, cst.ImportAlias):
                if last_name(node.name) == name:
                    return True
            elif isinstance(node, cst.SimpleString) and node.evaluated_value == name:
                if any(_assigns_all(parent) for parent in ancestors(source, node)):
                    return True
    return False


def _assigns_all(node: cst.CSTNode) -> bool:
    """Whether a statement assigns or extends `__all__`."""
    if isinstance(node, cst.Assign):
        targets = [target.target for target in node.targets]
    elif isinstance(node, cst.AugAssign | cst.AnnAssign):
        targets = [node.target]
    else:
        return False
    return any(isinstance(one, cst.Name) and one.value == "__all__" for one in targets)


def return_values(function: cst.FunctionDef) -> list[cst.BaseExpression]:
    """The expressions that a function may return, with None if it can end without a return."""
    found: list[cst.BaseExpression] = []
    stack: list[cst.CSTNode] = [function.body]
    while stack:
        node = stack.pop()
        if isinstance(node, cst.Return):
            found.append(node.value or cst.Name("None"))
        elif not isinstance(node, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            stack.extend(node.children)
    last = function.body.body[-1]
    ends = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Return)
    if not ends and not (isinstance(last, cst.If) and _both_return(last)):
        found.append(cst.Name("None"))
    return found


def calls_of(
    sources: Iterable[Source], function: cst.FunctionDef | cst.ClassDef
) -> Iterator[tuple[Source, cst.Call | None]]:
    """The calls of a function or class of the top level, found by its name.

    None stands for any other use of the name, or another function of that name.
    """
    for source in sources:
        for node in source.descend(source.tree):
            if not isinstance(node, cst.Name) or node.value != function.name.value:
                continue
            place = source.parent(node)
            if place is function or isinstance(place, cst.ImportAlias):
                continue
            if isinstance(place, cst.Attribute):
                node, place = place, source.parent(place)
            called = isinstance(place, cst.Call) and place.func is node
            yield source, place if isinstance(place, cst.Call) and called else None


def _both_return(node: cst.If) -> bool:
    other = node.orelse
    if isinstance(other, cst.If):
        return _both_return(other)
    if other is None:
        return False
    lasts = [block.body.body[-1] for block in (node, other)]
    return all(
        isinstance(x, cst.SimpleStatementLine) and isinstance(x.body[-1], cst.Return | cst.Raise)
        for x in lasts
    )
