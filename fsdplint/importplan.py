"""Which imports a file gains and loses, and where: the edits for both at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from fsdplint import layout
from fsdplint.bindings import Bindings, Imported, bindings_of
from fsdplint.importnames import by_kind, edit_names, line_limit
from fsdplint.importplace import Block, before, from_module, is_import, place, same_body
from fsdplint.imports import ancestors, function_of, imported_only, settled
from fsdplint.program.names import dotted
from fsdplint.program.source import Source, children
from fsdplint.rule import Edit, Import
from fsdplint.statements import Statements

Statement = cst.Import | cst.ImportFrom


def plan(source: Source, wanted: Iterable[Import], removed: Sequence[Imported]) -> list[Edit]:
    """The edits that import what is wanted and take away the imports that are not.

    The offsets in `wanted` are those of this source. An import that the file has already at the
    place where it would go is not added again.
    """
    bindings = bindings_of(source)
    statements = Statements(source)
    extended: dict[Statement, list[tuple[str, str]]] = {}
    fresh: dict[tuple[Block, str], list[Import]] = {}
    nodes: dict[tuple[Block, str], cst.CSTNode | None] = {}
    for item in dict.fromkeys(wanted):
        at = _node_at(source, item.at)
        anchor = _anchor(source, at)
        if anchor is not None:
            _beside(source, statements, extended, anchor, item)
            continue
        block = _block_for(bindings, item, at)
        if _present(bindings, block, item, at):
            continue
        joined = _extendable(bindings, block, item, at)
        if joined is not None:
            names = extended.setdefault(joined, [])
            if _pair(item) not in names:
                names.append(_pair(item))
        else:
            key = (block, item.module if item.name is not None else "")
            if item.name is not None and _one_each(_here(bindings, block, item.module, at)):
                key = (block, f"{item.module}.{item.name}")
            nodes.setdefault(key, at)
            fresh.setdefault(key, []).append(item)

    for (block, _), items in sorted(fresh.items(), key=_order):
        _add(source, statements, block, items, nodes[block, _])

    edits: list[Edit] = []
    losses: dict[Statement, list[cst.ImportAlias]] = {}
    whole: list[Statement] = []
    for gone in removed:
        losses.setdefault(gone.statement, []).append(gone.alias)
    for statement in dict.fromkeys([*losses, *extended]):
        aliases, names = losses.get(statement, []), extended.get(statement, [])
        every = statement.names
        if not names and not isinstance(every, cst.ImportStar) and len(aliases) == len(every):
            whole.append(statement)
            continue
        edit = edit_names(source, statement, aliases, names)
        if edit is not None:
            edits.append(edit)
    for gone_statement in _removable(source, whole):
        change = statements.change(gone_statement)
        change.deleted, change.keep_comments = True, False
    more, _less = statements.edits()
    return edits + more


def _removable(source: Source, whole: Sequence[Statement]) -> list[cst.CSTNode]:
    """What goes with import statements that have no name left.

    One that is all that a `try` or its handler does stays: it tests whether there is such a module.
    A block for type checking that would be empty goes.
    """
    lines = [layout.line_of(source, statement) for statement in whole]
    result: dict[cst.CSTNode, None] = {}
    for statement, line in zip(whole, lines, strict=True):
        block = source.parent(line)
        holder: cst.CSTNode | None = block  # of a one-line suite
        others: list[cst.CSTNode] = []
        if isinstance(block, cst.Module | cst.IndentedBlock):
            holder = source.parent(block)
            others = [x for x in block.body if x not in lines]
        if isinstance(holder, cst.Try | cst.TryStar | cst.ExceptHandler | cst.ExceptStarHandler):
            if any(is_import(x) for x in others):
                result[statement] = None
        elif isinstance(holder, cst.If) and not others and holder.orelse is None:
            result[holder if _type_checking(source, statement) else statement] = None
        else:
            result[statement] = None
    return list(result)


def _anchor(source: Source, at: cst.CSTNode | None) -> Statement | None:
    """The import statement that a node stands in: the import is to be made beside it."""
    while at is not None and not isinstance(at, cst.Import | cst.ImportFrom):
        at = source.parent(at)
    return at


def _beside(
    source: Source,
    statements: Statements,
    extended: dict[Statement, list[tuple[str, str]]],
    anchor: Statement,
    item: Import,
) -> None:
    """Import a name where another import statement does: in it, in one of its block, or below."""
    line = layout.line_of(source, anchor)
    block = source.parent(line)
    inside = block.body if isinstance(block, cst.Module | cst.IndentedBlock) else [line]
    lines = [x for x in inside if isinstance(x, layout.Line)]
    every = [x for other in lines for x in other.body]
    for other in [anchor, *every]:
        if isinstance(other, cst.ImportFrom) and not isinstance(other.names, cst.ImportStar):
            if item.name is not None and from_module(other) == item.module:
                names = extended.setdefault(other, [])
                if _pair(item) not in names:
                    names.append(_pair(item))
                return
    (text,) = _text(source, [item], layout.inner_indent(source, line))
    after = statements.change(line.body[-1]).after
    for physical in layout.physical_lines(source, text):
        if physical not in after:
            after.append(physical)


def _order(entry: tuple[tuple[Block, str], list[Import]]) -> tuple[object, ...]:
    """What new statements are sorted by: the module, then the name."""
    item = entry[1][0]
    return item.module, by_kind(item.name or "")


def _pair(item: Import) -> tuple[str, str]:
    """The name to sort by, and the text of the alias."""
    name = item.name or item.module
    return name, name if item.alias is None else f"{name} as {item.alias}"


def _node_at(source: Source, offset: int | None) -> cst.CSTNode | None:
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
    """The block that an import of a module belongs in.

    That of the file's other imports of the same package: the module's, one inside a `try`, or, in a
    file that imports the package lazily, the function's own.
    """
    source = bindings.source
    top = wanted.module.partition(".")[0]
    if at is not None and wanted.name is not None and wanted.alias is None:
        owner = bindings.owner(bindings.scope_at(at), wanted.name)
        full = f"{wanted.module}.{wanted.name}"
        if owner is not None and imported_only(owner, wanted.name, full):
            # The name is the function's own, because another branch of it imports it.
            for parent in ancestors(source, at):
                if isinstance(parent, cst.IndentedBlock):
                    return parent
    same = [x for x in bindings.imports() if x.module.partition(".")[0] == top]
    same = [x for x in same if not _type_checking(source, x.statement)]
    tree = source.tree

    def block(item: Imported) -> Block | None:
        outer = source.parent(layout.line_of(source, item.statement))
        return outer if isinstance(outer, cst.Module | cst.IndentedBlock) else None

    certain = [x for x in same if settled(bindings, x.statement, x.scope, at)]
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


def _type_checking(source: Source, statement: cst.CSTNode) -> bool:
    for parent in ancestors(source, statement):
        if isinstance(parent, cst.If) and (dotted(parent.test) or "").endswith("TYPE_CHECKING"):
            return True
    return False


def _present(bindings: Bindings, block: Block, item: Import, at: cst.CSTNode | None) -> bool:
    source = bindings.source
    limit = same_body(bindings, block, at)
    return any(
        (x.module, x.name) == (item.module, item.name)
        and (x.local == item.alias if x.renamed else item.alias is None)
        and source.parent(layout.line_of(source, x.statement)) is block
        and before(source, x.statement, limit)
        for x in bindings.imports()
    )


def _extendable(
    bindings: Bindings, block: Block, item: Import, at: cst.CSTNode | None
) -> cst.ImportFrom | None:
    """The last `from M import ...` that the name can join.

    Where each name has a statement of its own, so has the new one. A statement that only renames
    (`from M import X as Y`) is joined if there is no other.
    """
    if item.name is None:
        return None
    here = _here(bindings, block, item.module, at)
    if _one_each(here):
        return None
    return next((x for x in reversed(here) if _plain(x)), here[-1] if here else None)


def _plain(statement: cst.ImportFrom) -> bool:
    """Whether a statement imports some name as it is."""
    names = () if isinstance(statement.names, cst.ImportStar) else statement.names
    return any(alias.asname is None for alias in names)


def _one_each(statements: Sequence[cst.ImportFrom]) -> bool:
    """Whether several statements import from one module, each a single name."""
    plain = [x for x in statements if _plain(x)]
    return len(plain) > 1 and all(
        x.lpar is None and not isinstance(x.names, cst.ImportStar) and len(x.names) == 1
        for x in plain
    )


def _here(
    bindings: Bindings, block: Block, module: str, at: cst.CSTNode | None
) -> list[cst.ImportFrom]:
    """The `from M import ...` of a block; if it is the module's and has none, those it tries."""
    source = bindings.source
    limit = same_body(bindings, block, at)
    here: dict[cst.ImportFrom, None] = {}
    tried: dict[cst.ImportFrom, None] = {}
    for other in bindings.imports():
        statement = other.statement
        if other.module != module or not isinstance(statement, cst.ImportFrom):
            continue
        if not before(source, statement, limit):
            continue
        outer = source.parent(layout.line_of(source, statement))
        if outer is block:
            here[statement] = None
        elif block is source.tree and outer is not None:
            attempt = source.parent(outer)
            if (
                isinstance(attempt, cst.Try)
                and attempt.body is outer
                and source.parent(attempt) is block
            ):
                tried[statement] = None
    return list(here or tried)


def _text(source: Source, items: Sequence[Import], indent: str) -> list[list[str]]:
    """The statements for imports of one module, each as lines."""
    if items[0].name is None:
        pairs = sorted({_pair(item) for item in items})
        return [[f"import {text}"] for _, text in pairs]
    names = sorted({_pair(item) for item in items}, key=lambda pair: by_kind(pair[0]))
    line = f"from {items[0].module} import {', '.join(text for _, text in names)}"
    if len(indent + line) <= line_limit(source):
        return [[line]]
    return [[f"from {items[0].module} import (", *(f"\t{text}," for _, text in names), ")"]]


def _add(
    source: Source,
    statements: Statements,
    block: Block,
    items: Sequence[Import],
    at: cst.CSTNode | None,
) -> None:
    """Put new import statements into a block."""
    if not block.body:
        return
    first = block.body[0]
    indent = layout.line_indent(source, layout.start_of(source, first))
    for lines in _text(source, items, indent):
        text = layout.physical_lines(source, lines)
        module = items[0].module if items[0].name is not None else lines[0].split()[1]
        spot, above, gap = place(source, block, module, lines[0].startswith("from"), at)
        change = statements.change(spot)
        if above:
            # Several imports that come to the same place share its blank line.
            if gap and change.before[-1:] == [""]:
                change.before.pop()
            change.before.extend([*text, *[""] * gap])
        else:
            end = layout.body_end(source, source.parent(spot) or spot)[0]
            follows = bool(gap) and bool(source.text[end:].split("\n", 1)[0].strip())
            lead = [""] * gap if not change.after else []
            if follows and change.after:
                change.after.pop()
            change.after.extend([*lead, *text, *([""] if follows else [])])
