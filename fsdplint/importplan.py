"""Which imports a file gains and loses, and where: the edits for both at once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import libcst as cst

from fsdplint import layout
from fsdplint.bindings import Bindings, Imported, bindings_of
from fsdplint.importnames import by_kind, edit_names, line_limit
from fsdplint.imports import ancestors, function_of, settled
from fsdplint.program.names import dotted
from fsdplint.program.source import Source
from fsdplint.rule import Edit, Import
from fsdplint.statements import Statements

Statement = cst.Import | cst.ImportFrom
Block = cst.Module | cst.IndentedBlock


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
        block = _block_for(bindings, item.module, at)
        if _present(bindings, block, item, at):
            continue
        joined = _extendable(bindings, block, item, at)
        if joined is not None:
            names = extended.setdefault(joined, [])
            if _pair(item) not in names:
                names.append(_pair(item))
        else:
            key = (block, item.module if item.name is not None else "")
            nodes.setdefault(key, at)
            fresh.setdefault(key, []).append(item)

    for (block, _), items in sorted(fresh.items(), key=lambda pair: pair[1][0].module):
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
        holder = source.parent(block) if block is not None else None
        others = [x for x in getattr(block, "body", ()) if x not in lines]
        if isinstance(holder, cst.Try | cst.TryStar | cst.ExceptHandler | cst.ExceptStarHandler):
            if any(_is_import(x) for x in others):
                result[statement] = None
        elif isinstance(holder, cst.If) and not others and holder.orelse is None:
            result[holder if _type_checking(source, statement) else statement] = None
        else:
            result[statement] = None
    return list(result)


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(x, cst.Import | cst.ImportFrom) for x in statement.body
    )


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
            for child in node.children
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


def _block_for(bindings: Bindings, module: str, at: cst.CSTNode | None) -> Block:
    """The block that an import of a module belongs in.

    That of the file's other imports of the same package: the module's, one inside a `try`, or, in a
    file that imports the package lazily, the function's own.
    """
    source = bindings.source
    top = module.partition(".")[0]
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


def _before(source: Source, statement: cst.CSTNode, at: cst.CSTNode | None) -> bool:
    """Whether a statement has run before the code at a node, if both run in the same body."""
    return at is None or source.span(statement)[1] <= source.span(at)[0]


def _same_body(bindings: Bindings, block: Block, at: cst.CSTNode | None) -> cst.CSTNode | None:
    """The node, if it runs in the very function or module that the block belongs to."""
    if at is None:
        return None
    holder = next(
        (
            x
            for x in [block, *ancestors(bindings.source, block)]
            if isinstance(x, cst.FunctionDef | cst.Module)
        ),
        None,
    )
    return at if function_of(bindings, at) is holder else None


def _present(bindings: Bindings, block: Block, item: Import, at: cst.CSTNode | None) -> bool:
    source = bindings.source
    limit = _same_body(bindings, block, at)
    return any(
        (x.module, x.name) == (item.module, item.name)
        and (x.local == item.alias if x.renamed else item.alias is None)
        and source.parent(layout.line_of(source, x.statement)) is block
        and _before(source, x.statement, limit)
        for x in bindings.imports()
    )


def _extendable(
    bindings: Bindings, block: Block, item: Import, at: cst.CSTNode | None
) -> cst.ImportFrom | None:
    """The last `from M import ...` that the name can join."""
    if item.name is None:
        return None
    source = bindings.source
    limit = _same_body(bindings, block, at)
    here: cst.ImportFrom | None = None
    tried: cst.ImportFrom | None = None
    for other in bindings.imports():
        statement = other.statement
        if other.module != item.module or not isinstance(statement, cst.ImportFrom):
            continue
        if not _before(source, statement, limit):
            continue
        outer = source.parent(layout.line_of(source, statement))
        if outer is block:
            here = statement
        elif block is source.tree and outer is not None:
            attempt = source.parent(outer)
            if (
                isinstance(attempt, cst.Try)
                and attempt.body is outer
                and source.parent(attempt) is block
            ):
                tried = statement
    return here or tried


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
        place, before, gap = _place(source, block, module, lines[0].startswith("from"), at)
        change = statements.change(place)
        if before:
            # Several imports that come to the same place share its blank line.
            if gap and change.before[-1:] == [""]:
                change.before.pop()
            change.before.extend([*text, *[""] * gap])
        else:
            end = layout.body_end(source, source.parent(place) or place)[0]
            follows = bool(gap) and bool(source.text[end:].split("\n", 1)[0].strip())
            lead = [""] * gap if not change.after else []
            if follows and change.after:
                change.after.pop()
            change.after.extend([*lead, *text, *([""] if follows else [])])


def _place(
    source: Source, block: Block, module: str, is_from: bool, at: cst.CSTNode | None
) -> tuple[cst.CSTNode, bool, int]:
    """Next to which statement an import goes, whether before it, and with how many blank lines."""
    limit = _same_body(bindings_of(source), block, at)
    lines = _import_lines(source, block, limit)
    top = module.partition(".")[0]
    package = [x for x in lines if _top(x) == top]
    standard = top in sys.stdlib_module_names
    if not package and standard:
        package = [x for x in lines if _top(x) in sys.stdlib_module_names]
    elif not package:
        package = [x for x in lines if _top(x) not in {"", *sys.stdlib_module_names}]
    if package:
        return _in_run(source, package, module, is_from)
    if lines and standard:
        return _first_small(lines[0]), True, 1
    if lines:
        return _last_small(lines[-1]), False, 1
    blank = 1 if isinstance(block, cst.Module) else 0
    start: cst.CSTNode | None = None
    for number, statement in enumerate(block.body):
        if _is_future(statement) or (number == 0 and _is_docstring(statement)):
            start = statement
            continue
        break
    if start is not None:
        return _last_small(start), False, blank
    return _first_small(block.body[0]), True, blank


def _in_run(
    source: Source, package: Sequence[cst.SimpleStatementLine], module: str, is_from: bool
) -> tuple[cst.CSTNode, bool, int]:
    """The place among a package's imports: sorted in if the last ones are, else behind them."""
    run: list[cst.SimpleStatementLine] = []
    for line in reversed(package):
        if run:
            between = source.text[source.span(line)[1] : source.span(run[0])[0]]
            if len(layout.NEWLINE.findall(between)) > 1:
                break
        run.insert(0, line)
    same = [line for line in run if isinstance(line.body[0], cst.ImportFrom) == is_from]
    if not same:
        # `import x` above the `from x import y` of its run, and the other way round.
        return (_last_small(run[-1]), False, 0) if is_from else (_first_small(run[0]), True, 0)
    keys = [_module(line).lower() for line in same]
    if keys == sorted(keys):
        for key, line in zip(keys, same, strict=True):
            if key > module.lower() and not line.leading_lines:
                return _first_small(line), True, 0
    return _last_small(same[-1]), False, 0


def _import_lines(
    source: Source, block: Block, limit: cst.CSTNode | None
) -> list[cst.SimpleStatementLine]:
    """The import lines of a block but for `__future__`, above its first definition if any are."""
    every: list[cst.SimpleStatementLine] = []
    top: list[cst.SimpleStatementLine] = []
    definitions = False
    for statement in block.body:
        if not _before(source, statement, limit):
            break
        definitions = definitions or isinstance(statement, cst.FunctionDef | cst.ClassDef)
        if _is_import(statement) and not _is_future(statement):
            assert isinstance(statement, cst.SimpleStatementLine)
            every.append(statement)
            if not definitions:
                top.append(statement)
    return top or every


def _module(line: cst.SimpleStatementLine) -> str:
    """The module of a line's first import; relative ones have their dots."""
    statement = line.body[0]
    if isinstance(statement, cst.ImportFrom):
        name = dotted(statement.module) if statement.module is not None else ""
        return "." * len(statement.relative) + (name or "")
    assert isinstance(statement, cst.Import)
    return dotted(statement.names[0].name) or ""


def _top(line: cst.SimpleStatementLine) -> str:
    """The top-level package of a line's first import, "" for a relative one."""
    return _module(line).partition(".")[0]


def _is_future(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and any(
        isinstance(x, cst.ImportFrom) and x.module is not None and dotted(x.module) == "__future__"
        for x in statement.body
    )


def _is_docstring(statement: cst.CSTNode) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, cst.SimpleString | cst.ConcatenatedString)
    )


def _first_small(statement: cst.CSTNode) -> cst.CSTNode:
    return statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else statement


def _last_small(statement: cst.CSTNode) -> cst.CSTNode:
    return statement.body[-1] if isinstance(statement, cst.SimpleStatementLine) else statement
