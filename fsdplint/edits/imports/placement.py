"""The position of a new import statement in a block."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import libcst as cst

from fsdplint.source.source import Source
from fsdplint.syntax import layout
from fsdplint.syntax.dotted import dotted_name

Block = cst.Module | cst.IndentedBlock


def before(source: Source, statement: cst.CSTNode, at: cst.CSTNode | None) -> bool:
    """Whether a statement runs before the code at a node, if both are in the same body."""
    return at is None or source.span(statement)[1] <= source.span(at)[0]


def from_module(statement: cst.ImportFrom) -> str:
    name = dotted_name(statement.module) if statement.module is not None else ""
    return "." * len(statement.relative) + name


def is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(x, cst.Import | cst.ImportFrom) for x in statement.body
    )


def place(
    source: Source, block: Block, module: str, is_from: bool, limit: cst.CSTNode | None
) -> tuple[cst.CSTNode, bool, int]:
    """The statement to put an import next to, whether before it, and the number of blank lines.

    limit: code of the same body that the import must precede.
    """
    lines = _import_lines(source, block, limit)
    top = module.partition(".")[0]
    package = [x for x in lines if _top(x) == top]
    standard = top in sys.stdlib_module_names
    if not package and standard:
        package = [x for x in lines if _top(x) in sys.stdlib_module_names]
    elif not package:
        package = [x for x in lines if _top(x) not in {"", *sys.stdlib_module_names}]
    if package:
        return _in_run(source, _nearest(source, package, module), module, is_from)
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


def _nearest(
    source: Source, package: Sequence[cst.SimpleStatementLine], module: str
) -> Sequence[cst.SimpleStatementLine]:
    """The imports of a package up to the run that has the modules next to a module.

    All of them if none is of the same subpackage, or if a comment says what such a run is.
    """
    runs: list[list[cst.SimpleStatementLine]] = []
    for line in package:
        if runs and not _is_apart(source, runs[-1][-1], line):
            runs[-1].append(line)
        else:
            runs.append([line])
    shared = [max(_shared(_module(line), module) for line in run) for run in runs]
    most = max(shared)
    fitting = [
        run
        for run, count in zip(runs, shared, strict=True)
        if count == most and not any(one.comment for one in run[0].leading_lines)
    ]
    return package if most < 2 or not fitting else fitting[-1]


def _shared(one: str, other: str) -> int:
    """How many parts two dotted names have in common, from the left."""
    count = 0
    for mine, theirs in zip(one.split("."), other.split("."), strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _is_apart(
    source: Source, line: cst.SimpleStatementLine, following: cst.SimpleStatementLine
) -> bool:
    """Whether other lines are between two imports."""
    between = source.text[source.span(line)[1] : source.span(following)[0]]
    return len(layout.NEWLINE.findall(between)) > 1


def _in_run(
    source: Source, package: Sequence[cst.SimpleStatementLine], module: str, is_from: bool
) -> tuple[cst.CSTNode, bool, int]:
    """The position among a package's imports: in order if the last ones are sorted, else after
    them."""
    run: list[cst.SimpleStatementLine] = []
    for line in reversed(package):
        if run and _is_apart(source, line, run[0]):
            break
        run.insert(0, line)
    same = [line for line in run if isinstance(line.body[0], cst.ImportFrom) == is_from]
    if not same:
        # `import x` goes above the `from x import y` of its run, and `from` below.
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
    """The import lines of a block but `__future__`: those above its first definition, if any."""
    lines: list[cst.SimpleStatementLine] = []
    top: list[cst.SimpleStatementLine] = []
    definitions = False
    for statement in block.body:
        if not before(source, statement, limit):
            break
        definitions = definitions or isinstance(statement, cst.FunctionDef | cst.ClassDef)
        if is_import(statement) and not _is_future(statement):
            assert isinstance(statement, cst.SimpleStatementLine)
            lines.append(statement)
            if not definitions:
                top.append(statement)
    return top or lines


def _module(line: cst.SimpleStatementLine) -> str:
    """The module of the first import of a line; relative modules keep their dots."""
    statement = line.body[0]
    if isinstance(statement, cst.ImportFrom):
        return from_module(statement)
    assert isinstance(statement, cst.Import)
    return dotted_name(statement.names[0].name)


def _top(line: cst.SimpleStatementLine) -> str:
    """The top-level package of a line's first import, "" for a relative one."""
    return _module(line).partition(".")[0]


def _is_future(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and any(
        isinstance(x, cst.ImportFrom)
        and x.module is not None
        and dotted_name(x.module) == "__future__"
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
