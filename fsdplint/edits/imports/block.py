"""Choose the block for a new import: the import must run before every use of its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import libcst as cst

from fsdplint.diagnostics.finding import Import
from fsdplint.edits.imports.placement import Block
from fsdplint.edits.imports.spelling import imported_only, local_name
from fsdplint.source.source import Source, children, once
from fsdplint.syntax import layout
from fsdplint.syntax.bindings import Bindings, Imported, Scope, bindings_of
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.import_order import (
    ancestors,
    first_run,
    function_of,
    has_run_before,
    no_branch_skips,
)

Statement = cst.Import | cst.ImportFrom


@dataclass(eq=False)
class Spot:
    """The place for an import.

    Attributes:
        body: the block, or the one-line suite that holds `anchor`.
        anchor: the import statement to put it beside, if any.
        limit: the code that it must precede, if that is in the same function.
    """

    item: Import
    body: Block | layout.Line
    at: cst.CSTNode | None
    anchor: Statement | None
    limit: cst.CSTNode | None = None


def choose(source: Source, imports: Iterable[Import]) -> list[Spot]:
    """A place for every import; an import that several functions can share gets one place."""
    bindings = bindings_of(source)
    spots = [_spot(bindings, item) for item in dict.fromkeys(imports)]
    for group in _group_by_name(bindings, spots):
        if not _cover_uses(bindings, group):
            for spot in group:
                _lift(bindings, spot)
    top = {spot.item.module for spot in spots if spot.body is source.tree}
    for spot in spots:
        if spot.item.module in top and bindings.module is not _scope(bindings, spot):
            _lift(bindings, spot, only_to_top=True)
    at_top: set[tuple[str, str | None, str | None]] = set()
    result = []
    for spot in spots:
        key = (spot.item.module, spot.item.name, spot.item.alias)
        if spot.body is source.tree and spot.anchor is None:
            if key in at_top:
                continue
            at_top.add(key)
        result.append(spot)
    for group in _group_by_name(bindings, result):
        _cover_uses(bindings, group)
    return result


def _spot(bindings: Bindings, item: Import) -> Spot:
    source = bindings.source
    at = node_at(source, item.at)
    anchor = _anchor(source, at)
    if anchor is None:
        return Spot(item, _block_for(bindings, item, at), at, None)
    line = layout.line_of(source, anchor)
    block = source.parent(line)
    body = block if isinstance(block, cst.Module | cst.IndentedBlock) else line
    return Spot(item, body, at, anchor)


def _scope(bindings: Bindings, spot: Spot) -> Scope:
    """The scope in which the import binds its name."""
    inside = spot.body.body
    scope = bindings.scope_at(inside[0]) if inside else bindings.module
    return bindings.module if local_name(spot.item) in scope.outer_names else scope


def _group_by_name(bindings: Bindings, spots: Sequence[Spot]) -> list[list[Spot]]:
    """The spots, grouped by the name and the scope that they bind it in."""
    groups: dict[tuple[Scope, str], list[Spot]] = {}
    for spot in spots:
        key = (_scope(bindings, spot), local_name(spot.item))
        groups.setdefault(key, []).append(spot)
    return list(groups.values())


def _cover_uses(bindings: Bindings, group: Sequence[Spot]) -> bool:
    """Whether every use of the name follows an import of it; sets the limits of the spots.

    A conditional import of a module counts as executed for all code below it.
    """
    source = bindings.source
    scope, local = _scope(bindings, group[0]), local_name(group[0].item)
    uses = dict.fromkeys(_uses(bindings, scope, local))
    uses.update(dict.fromkeys(x.at for x in group if x.anchor is None and x.at is not None))
    sound = True
    for use in uses:
        first = first_run(bindings, scope.node, use)
        if first is None:
            continue
        start = source.span(first)[0]
        covered = False
        for spot in group:
            behind = _begin(source, spot) <= start
            inside: cst.CSTNode = spot.anchor or spot.body
            if behind and (
                scope is bindings.module or no_branch_skips(bindings, inside, scope, use)
            ):
                covered = True
                if spot.limit is None or start < source.span(spot.limit)[0]:
                    spot.limit = first
        sound = sound and covered
    return sound


def _begin(source: Source, spot: Spot) -> int:
    """The last possible offset of the import: beside its anchor, or first in its block."""
    if spot.anchor is not None:
        return source.span(spot.anchor)[1]
    if isinstance(spot.body, cst.Module) or not spot.body.body:
        return 0
    return layout.start_of(source, spot.body.body[0])


@once
def _names(source: Source) -> dict[str, list[cst.Name]]:
    """The names in a file by their text."""
    found: dict[str, list[cst.Name]] = {}
    for node in source.descend(source.tree):
        if isinstance(node, cst.Name):
            found.setdefault(node.value, []).append(node)
    return found


def _uses(bindings: Bindings, scope: Scope, local: str) -> list[cst.CSTNode]:
    """The reads of a name at which a scope does not certainly bind it yet."""
    source = bindings.source
    result: list[cst.CSTNode] = []
    candidates = [x for x in scope.imports if x.local == local]
    for node in _names(source).get(local, ()):
        if scope is not bindings.module and scope.node not in ancestors(source, node):
            continue
        if _only_a_label(source, node):
            continue
        owner = next(x for x in bindings.scope_at(node).chain() if x is scope or x.binds(local))
        if owner is scope and not any(
            has_run_before(bindings, x.statement, scope, node, local) for x in candidates
        ):
            result.append(node)
    return result


def _only_a_label(source: Source, name: cst.Name) -> bool:
    """Whether a name is an attribute, keyword, imported name or definition."""
    match source.parent(name):
        case cst.Attribute(attr=label) | cst.Arg(keyword=label):
            return label is name
        case cst.FunctionDef() | cst.ClassDef() | cst.Param() as definition:
            return definition.name is name
        case cst.ImportAlias() | cst.AsName() | cst.ImportFrom() | cst.NameItem():
            return True
    return False


def _lift(bindings: Bindings, spot: Spot, *, only_to_top: bool = False) -> None:
    """Move an import to the top of the module, or of the function that owns its name."""
    source, local = bindings.source, local_name(spot.item)
    near: cst.CSTNode = spot.anchor or spot.at or spot.body
    owner = next(
        (x for x in bindings.scope_at(near).chain() if x.kind != "module" and x.binds(local)), None
    )
    if owner is None:
        spot.body, spot.anchor, spot.limit = source.tree, None, None
        return
    body = getattr(owner.node, "body", None)
    if not only_to_top and isinstance(body, cst.IndentedBlock):
        spot.body, spot.anchor, spot.limit = body, None, None


def _anchor(source: Source, at: cst.CSTNode | None) -> Statement | None:
    """The import statement that holds a node; the new import is placed beside it."""
    while at is not None and not isinstance(at, cst.Import | cst.ImportFrom):
        at = source.parent(at)
    return at


def node_at(source: Source, offset: int | None) -> cst.CSTNode | None:
    """The smallest expression or statement that holds an offset."""
    if offset is None:
        return None
    node: cst.CSTNode = source.tree
    while True:
        inside = [
            child
            for child in children(node)
            if isinstance(child, cst.CSTNode) and _holds(source, child, offset)
        ]
        if not inside:
            return None if node is source.tree else node
        node = inside[-1]


def _holds(source: Source, node: cst.CSTNode, offset: int) -> bool:
    try:
        start, end = source.span(node)
    except KeyError:
        return False
    return start <= offset < end


def _block_for(bindings: Bindings, wanted: Import, at: cst.CSTNode | None) -> Block:
    """The block for an import of a module.

    It is the block of the file's other imports of the same package: the module, a `try`, or the
    function itself if the file imports the package lazily.
    """
    source = bindings.source
    top = wanted.module.partition(".")[0]
    if at is not None and wanted.name is not None and wanted.alias is None:
        owner = bindings.owner(bindings.scope_at(at), wanted.name)
        full = f"{wanted.module}.{wanted.name}"
        if owner is not None and imported_only(owner, wanted.name, full):
            # The name is local to the function, because another branch of it imports it.
            for parent in ancestors(source, at):
                if isinstance(parent, cst.IndentedBlock):
                    return parent
    same = [x for x in bindings.imports() if x.module.partition(".")[0] == top]
    same = [x for x in same if not type_checking(source, x.statement)]
    tree = source.tree

    def block(item: Imported) -> Block | None:
        outer = source.parent(layout.line_of(source, item.statement))
        return outer if isinstance(outer, cst.Module | cst.IndentedBlock) else None

    certain = [x for x in same if has_run_before(bindings, x.statement, x.scope, at)]
    seen = list(bindings.scope_at(at).chain()) if at is not None else [bindings.module]
    if any(block(x) is tree for x in certain):
        return tree
    for item in reversed(certain):
        if item.scope in seen and (found := block(item)) is not None:
            return found
    if at is not None and any(x.scope is not bindings.module or block(x) is not tree for x in same):
        function = function_of(bindings, at)
        body = getattr(function, "body", None)
        if isinstance(function, cst.FunctionDef) and isinstance(body, cst.IndentedBlock):
            return body
    return tree


def type_checking(source: Source, statement: cst.CSTNode) -> bool:
    """Whether a statement runs only for type checkers."""
    for parent in ancestors(source, statement):
        if isinstance(parent, cst.If) and dotted_name(parent.test).endswith("TYPE_CHECKING"):
            return True
    return False
