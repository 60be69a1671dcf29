"""Plan the imports that a file gains and loses; one list of edits for both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.diagnostics.finding import Edit, Import
from fsdplint.edits.imports.block import Spot, Statement, choose, type_checking
from fsdplint.edits.imports.headings import without_headings
from fsdplint.edits.imports.names import by_kind, edit_names, line_limit
from fsdplint.edits.imports.placement import Block, before, from_module, is_import, place
from fsdplint.edits.imports.stand_ins import emptied_tries, stand_ins
from fsdplint.edits.statement_edits import Statements
from fsdplint.source.source import Source
from fsdplint.syntax import layout
from fsdplint.syntax.bindings import Bindings, Imported, bindings_of
from fsdplint.syntax.layout import descend


@dataclass
class _Additions:
    """Where the imports that a file gains go.

    Attributes:
        extended: statements with the (sort key, text) pairs of the names that they gain.
        beside: spots for new statements beside an import statement, by anchor and module.
        separate: spots for new statements in a block, by block and module.
    """

    extended: dict[Statement, list[tuple[str, str]]] = field(default_factory=dict)
    beside: dict[tuple[Statement, str], list[Spot]] = field(default_factory=dict)
    separate: dict[tuple[Block, str], list[Spot]] = field(default_factory=dict)


def plan(source: Source, wanted: Iterable[Import], removed: Sequence[Imported]) -> list[Edit]:
    """The edits that add the imports in `wanted` and remove those in `removed`.

    The offsets in `wanted` refer to this source. An import that already exists at its place is not
    added again.
    """
    additions = _additions(source, wanted)
    statements = Statements(source)
    for (anchor, _), spots in sorted(additions.beside.items(), key=_order):
        _add_beside(source, statements, anchor, spots)
    for (block, _), spots in sorted(additions.separate.items(), key=_order):
        _add(source, statements, block, spots)
    edits, emptied = _edit_statements(source, additions.extended, removed)
    gaining = [source.parent(layout.line_of(source, anchor)) for anchor, _ in additions.beside]
    fallbacks = [one for item in removed for one in stand_ins(source, item) or ()]
    tries = emptied_tries(source, emptied, fallbacks)
    inside = {part for one in tries for part in descend(one)}
    single = [*_removable(source, emptied, gaining), *fallbacks]
    for statement in [*tries, *(one for one in single if one not in inside)]:
        change = statements.change(statement)
        change.deleted, change.keep_comments = True, False
    gone = [one for one in emptied if one in single and statements.change(one).is_removed]
    return [*edits, *without_headings(source, gone), *statements.edits()[0]]


def _additions(source: Source, wanted: Iterable[Import]) -> _Additions:
    """Choose between extending a statement and adding one, for each import that is missing."""
    bindings = bindings_of(source)
    result = _Additions()
    for spot in choose(source, wanted):
        item, block = spot.item, spot.body
        module = item.module if item.name is not None else ""
        if spot.anchor is not None:
            statement = _statement_to_extend(source, spot)
        elif isinstance(block, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            continue  # applies only beside an anchor
        elif _present(bindings, block, item, spot.limit):
            continue
        else:
            statement = _extendable(bindings, block, item, spot.limit)
        if statement is not None:
            names = result.extended.setdefault(statement, [])
            if _pair(item) not in names:
                names.append(_pair(item))
        elif spot.anchor is not None:
            result.beside.setdefault((spot.anchor, module), []).append(spot)
        else:
            assert isinstance(block, cst.Module | cst.IndentedBlock)
            if item.name is not None and _one_each(
                _from_imports(bindings, block, item.module, spot.limit)
            ):
                module = f"{item.module}.{item.name}"
            result.separate.setdefault((block, module), []).append(spot)
    return result


def _edit_statements(
    source: Source,
    extended: Mapping[Statement, list[tuple[str, str]]],
    removed: Sequence[Imported],
) -> tuple[list[Edit], list[Statement]]:
    """The edits of the statements that change, and the statements that lose all of their names."""
    edits: list[Edit] = []
    emptied: list[Statement] = []
    losses: dict[Statement, list[cst.ImportAlias]] = {}
    for item in removed:
        losses.setdefault(item.statement, []).append(item.alias)
    for statement in dict.fromkeys([*losses, *extended]):
        aliases, names = losses.get(statement, []), extended.get(statement, [])
        all_names = statement.names
        if (
            not names
            and not isinstance(all_names, cst.ImportStar)
            and len(aliases) == len(all_names)
        ):
            emptied.append(statement)
            continue
        edit = edit_names(source, statement, aliases, names)
        if edit is not None:
            edits.append(edit)
    return edits, emptied


def _removable(
    source: Source, emptied: Sequence[Statement], gaining: Sequence[cst.CSTNode | None]
) -> list[cst.CSTNode]:
    """The statements to delete because they import no name any more.

    An import that is the only statement of a `try` or its handler stays: it tests whether the
    module exists. A type checking block that would be empty is deleted.

    gaining: blocks that gain imports.
    """
    lines = [layout.line_of(source, statement) for statement in emptied]
    result: dict[cst.CSTNode, None] = {}
    for statement, line in zip(emptied, lines, strict=True):
        block = source.parent(line)
        holder: cst.CSTNode | None = block  # of a one-line suite
        others: list[cst.CSTNode] = []
        if isinstance(block, cst.Module | cst.IndentedBlock):
            holder = source.parent(block)
            others = [x for x in block.body if x not in lines]
        if isinstance(holder, cst.Try | cst.TryStar | cst.ExceptHandler | cst.ExceptStarHandler):
            if any(is_import(x) for x in others) or any(x is block for x in gaining):
                result[statement] = None
        elif isinstance(holder, cst.If) and not others and holder.orelse is None:
            result[holder if type_checking(source, statement) else statement] = None
        else:
            result[statement] = None
    return list(result)


def _statement_to_extend(source: Source, spot: Spot) -> cst.ImportFrom | None:
    """The `from M import ...` near the spot's anchor that the name can extend."""
    assert spot.anchor is not None
    if spot.item.name is None:
        return None
    line = layout.line_of(source, spot.anchor)
    inside = spot.body.body if isinstance(spot.body, cst.Module | cst.IndentedBlock) else [line]
    smalls: list[cst.CSTNode] = []
    for statement in inside:
        if isinstance(statement, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            smalls.extend(statement.body)
        else:
            smalls.append(statement)
    number = smalls.index(spot.anchor)
    # Below the anchor, only the imports that follow it directly.
    end = next((x for x in range(number, len(smalls)) if not _imports(smalls[x])), len(smalls))
    for other in [spot.anchor, *smalls[:number], *smalls[number:end]]:
        if (
            isinstance(other, cst.ImportFrom)
            and not isinstance(other.names, cst.ImportStar)
            and from_module(other) == spot.item.module
            and before(source, other, spot.limit)
        ):
            return other
    return None


def _imports(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.Import | cst.ImportFrom)


def _add_beside(
    source: Source, statements: Statements, anchor: Statement, spots: Sequence[Spot]
) -> None:
    """Put new imports of one module below an import statement, or above a line of other code."""
    line = layout.line_of(source, anchor)
    items = [spot.item for spot in spots]
    change = statements.change(line.body[-1])
    lines = change.after
    if not all(_imports(x) for x in line.body):
        lines = statements.change(line.body[0]).before
    for text in _text(source, items, layout.inner_indent(source, line)):
        lines.extend(layout.physical_lines(source, text))


def _order(entry: tuple[tuple[cst.CSTNode, str], list[Spot]]) -> tuple[object, ...]:
    """The sort key of new statements: the module, then the name."""
    item = entry[1][0].item
    return item.module, by_kind(item.name or "")


def _pair(item: Import) -> tuple[str, str]:
    """The sort key of a name, and the text of its alias."""
    name = item.name or item.module
    return name, name if item.alias is None else f"{name} as {item.alias}"


def _present(bindings: Bindings, block: Block, item: Import, limit: cst.CSTNode | None) -> bool:
    source = bindings.source
    return any(
        (x.module, x.name) == (item.module, item.name)
        and (x.local == item.alias if x.renamed else item.alias is None)
        and source.parent(layout.line_of(source, x.statement)) is block
        and before(source, x.statement, limit)
        for x in bindings.imports()
    )


def _extendable(
    bindings: Bindings, block: Block, item: Import, limit: cst.CSTNode | None
) -> cst.ImportFrom | None:
    """The last `from M import ...` that the name can extend.

    None if each name has its own statement. A statement that only renames (`from M import X as Y`)
    is extended if there is no other.
    """
    if item.name is None:
        return None
    candidates = _from_imports(bindings, block, item.module, limit)
    if _one_each(candidates):
        return None
    return next(
        (x for x in reversed(candidates) if _has_unaliased_name(x)),
        candidates[-1] if candidates else None,
    )


def _has_unaliased_name(statement: cst.ImportFrom) -> bool:
    """Whether a statement imports some name without an alias."""
    names = () if isinstance(statement.names, cst.ImportStar) else statement.names
    return any(alias.asname is None for alias in names)


def _one_each(statements: Sequence[cst.ImportFrom]) -> bool:
    """Whether several statements import a single name each from one module."""
    unaliased = [x for x in statements if _has_unaliased_name(x)]
    return len(unaliased) > 1 and all(
        x.lpar is None and not isinstance(x.names, cst.ImportStar) and len(x.names) == 1
        for x in unaliased
    )


def _from_imports(
    bindings: Bindings, block: Block, module: str, limit: cst.CSTNode | None
) -> list[cst.ImportFrom]:
    """The `from M import ...` of a block; if the module has none at its top, those in its `try`."""
    source = bindings.source
    direct: dict[cst.ImportFrom, None] = {}
    in_try: dict[cst.ImportFrom, None] = {}
    for other in bindings.imports():
        statement = other.statement
        if other.module != module or not isinstance(statement, cst.ImportFrom):
            continue
        if not before(source, statement, limit):
            continue
        outer = source.parent(layout.line_of(source, statement))
        if outer is block:
            direct[statement] = None
        elif block is source.tree and outer is not None:
            attempt = source.parent(outer)
            if (
                isinstance(attempt, cst.Try)
                and attempt.body is outer
                and source.parent(attempt) is block
            ):
                in_try[statement] = None
    return list(direct or in_try)


def _text(source: Source, items: Sequence[Import], indent: str) -> list[list[str]]:
    """The statements for imports of one module, as lists of lines."""
    if items[0].name is None:
        pairs = sorted({_pair(item) for item in items})
        return [[f"import {text}"] for _, text in pairs]
    names = sorted({_pair(item) for item in items}, key=lambda pair: by_kind(pair[0]))
    line = f"from {items[0].module} import {', '.join(text for _, text in names)}"
    if len(indent + line) <= line_limit(source):
        return [[line]]
    return [[f"from {items[0].module} import (", *(f"\t{text}," for _, text in names), ")"]]


def _add(source: Source, statements: Statements, block: Block, spots: Sequence[Spot]) -> None:
    """Put new import statements into a block."""
    if not block.body:
        return
    items = [spot.item for spot in spots]
    limits = [spot.limit for spot in spots if spot.limit is not None]
    limit = min(limits, key=lambda node: source.span(node)[0], default=None)
    first = block.body[0]
    indent = layout.line_indent(source, layout.start_of(source, first))
    for lines in _text(source, items, indent):
        text = layout.physical_lines(source, lines)
        module = items[0].module if items[0].name is not None else lines[0].split()[1]
        spot, above, gap = place(source, block, module, lines[0].startswith("from"), limit)
        change = statements.change(spot)
        if above:
            # Imports at the same position share its blank line.
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
