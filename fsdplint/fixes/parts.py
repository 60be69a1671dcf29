"""Convert `torch.save` of sharded states to `torch.distributed.checkpoint.save`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from fsdplint.diagnostics.finding import Finding
from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.guarded_statements import (
    GuardedStatement,
    Statement,
    guarded_statement,
    may_overtake,
)
from fsdplint.fixes.rank_guard import statement_lines
from fsdplint.fixes.state_dict import API, rank_guard, takings_of
from fsdplint.fixes.syntax import argument, call_at, is_within, names, substitute, uses
from fsdplint.interpreter import Program
from fsdplint.source.source import Source
from fsdplint.syntax import layout
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.trace import Saved
from fsdplint.trace.queries.common import RANK_WORDS, perhaps_one_rank

DCP = "torch.distributed.checkpoint"
READERS = ("torch.load", "safetensors.torch.load_file", "safetensors.safe_open")
# Calls that accept a folder's path as well as a file's.
INDIFFERENT = {
    *("join", "dirname", "basename", "abspath", "exists", "lexists", "expanduser", "Path", "str"),
    *("makedirs", "mkdir", "print", "info", "debug", "warning", "log", "format", "fspath"),
}
# Calls that may run on every rank instead of one.
PURE = {"join", "dirname", "basename", "abspath", "expanduser", "Path", "str", "int", "float"} | {
    *("format", "dict", "item", "state_dict", "get_last_lr", "vars", "asdict")
}

Sourced = tuple[Source, cst.Call]


def save_parts(rewrite: Rewrite, finding: Finding, program: Program) -> str | None:
    """Let all ranks write their parts of the states of a finding into a folder.

    finding: its first event is the `Saved`, the others are the `StateTaken`s.

    Returns:
        The reason why the rewrite is not possible; None if it was done.
    """
    saved, found = finding.events[0], call_at(finding.site)
    if found is None or not isinstance(saved, Saved) or saved.api != "torch.save":
        return "only what `torch.save` writes can become a distributed checkpoint"
    source, save = found
    content, path = argument(save, 0, "obj"), argument(save, 1, "f")
    if content is None or path is None or len(save.args) != 2:
        return "`torch.save` has further arguments"
    calls = [found, *filter(None, map(call_at, saved.stack))]
    takings = takings_of(finding, program, calls)
    if not takings or any(t.saved_by is not save or t.source is not source for t in takings):
        return "the states are not taken where they are saved"
    if not all(_saved_as_it_is(source, taking.call, save) for taking in takings):
        return "the states are changed before they are saved"
    reason = _reader(program) or _path_use(program, source, path.value, calls)
    if reason is not None:
        return reason
    dcp = rewrite.need_import(source, DCP, usual="dcp")
    texts: dict[cst.CSTNode, str] = {save.func: f"{dcp}.save"}
    if content.keyword is not None:
        texts[content.keyword] = "state_dict"
    if path.keyword is not None:
        texts[path.keyword] = "checkpoint_id"
    else:
        texts[path.value] = f"checkpoint_id={source.code(path.value)}"
    for taking in takings:
        getter = rewrite.need_import(source, API, taking.getter, at=taking.call)
        texts[taking.call] = f"{getter}({', '.join(taking.arguments)})"
    if not saved.ranks.partial:
        if perhaps_one_rank(saved):
            return "perhaps not all ranks come to the call that saves"
        _replace(rewrite, source, texts)
        return None
    guard = rank_guard(saved)
    place = guarded_statement(source, save, guard) if guard is not None else None
    if place is None or not _take_out(rewrite, source, save, place, texts):
        return "the call that saves can't be moved out of the rank test around it"
    return None


def _replace(rewrite: Rewrite, source: Source, texts: dict[cst.CSTNode, str]) -> None:
    for node, text in texts.items():
        rewrite.replace(source, node, text)


def _saved_as_it_is(source: Source, node: cst.CSTNode, save: cst.Call) -> bool:
    """Whether a value is only written to the file, directly or inside dicts."""
    parent = source.parent(node)
    if isinstance(parent, cst.Arg):
        return parent is argument(save, 0, "obj")
    if isinstance(parent, cst.DictElement):
        statement = source.parent(parent)
        return isinstance(statement, cst.Dict) and _saved_as_it_is(source, statement, save)
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return False
    target = parent.targets[0].target
    if not isinstance(target, cst.Name):
        return False
    others = [u for u in uses(function_around(source, node), target.value) if u is not target]
    return bool(others) and all(
        _entry(source, use) or _saved_as_it_is(source, use, save) for use in others
    )


def _entry(source: Source, use: cst.CSTNode) -> bool:
    """`checkpoint["step"] = ...`"""
    parent = source.parent(use)
    return isinstance(parent, cst.Subscript) and isinstance(source.parent(parent), cst.AssignTarget)


# What else has to do with the file ------------------------------------------------------------


def _reader(program: Program) -> str | None:
    for package in ("torch.", "safetensors."):
        for source, node, name in program.references(package):
            if name in READERS:
                line = source.location(node).line
                return (
                    f"`{source.code(node)}` ({source.path}:{line}) may read the file, but a "
                    "distributed checkpoint needs `torch.distributed.checkpoint.load`"
                )
    return None


def _path_use(
    program: Program, source: Source, path: cst.CSTNode, calls: list[Sourced]
) -> str | None:
    """The reason why the path cannot be a folder's; None if nothing prevents it."""
    origins = list(_origins(source, path, calls))
    if any(isinstance(node, cst.With) or _opens(node) for _, node in origins):
        return "the file is opened by the program"
    texts = {where.code(node) for where, node in origins}
    saving_calls = [call for _, call in calls]
    size = 0
    while size != len(texts):
        size = len(texts)
        for other in program.sources.values():
            for node in _nodes(other.tree):
                if isinstance(node, cst.Assign) and _contains(other, node.value, texts):
                    if isinstance(node.value, cst.Call) and not _is_indifferent(node.value):
                        continue
                    texts |= {other.code(t.target) for t in node.targets}
    for other in program.sources.values():
        for node in _nodes(other.tree):
            if not isinstance(node, cst.Call) or node in saving_calls or _is_indifferent(node):
                continue
            if any(_contains(other, arg.value, texts) for arg in node.args):
                line = other.location(node).line
                return (
                    f"`{other.code(node.func)}` ({other.path}:{line}) uses the path, but a "
                    "distributed checkpoint is a folder"
                )
    return None


def _origins(
    source: Source, node: cst.CSTNode, calls: list[Sourced]
) -> Iterator[tuple[Source, cst.CSTNode]]:
    """The expression of a path, and the expressions that its names refer to by assignment or
    argument."""
    pending, visited = [(source, node)], set()
    while pending:
        where, current = pending.pop()
        if current in visited:
            continue
        visited.add(current)
        yield where, current
        if not isinstance(current, cst.Name):
            continue
        scope = function_around(where, current)
        for use in uses(scope, current.value):
            parent = where.parent(use)
            if isinstance(parent, cst.AssignTarget):
                assign = where.parent(parent)
                assert isinstance(assign, cst.Assign)
                pending.append((where, assign.value))
            elif isinstance(parent, cst.AsName):
                item = where.parent(parent)
                block = where.parent(item) if item is not None else None
                if block is not None:
                    yield where, block
            elif isinstance(parent, cst.Param) and isinstance(scope, cst.FunctionDef):
                pending += _arguments(scope, parent, calls)


def _arguments(
    function: cst.FunctionDef, wanted: cst.Param, calls: list[Sourced]
) -> Iterator[tuple[Source, cst.CSTNode]]:
    params = [*function.params.posonly_params, *function.params.params]
    if params and params[0].name.value in {"self", "cls"}:
        params = params[1:]
    position = params.index(wanted) if wanted in params else len(params)
    for source, call in calls[1:]:
        arg = argument(call, position, wanted.name.value)
        if arg is not None:
            yield source, arg.value


def _opens(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and dotted_name(node.func).rpartition(".")[2] in {
        *("open", "BytesIO", "NamedTemporaryFile", "TemporaryFile")
    }


def _is_indifferent(call: cst.Call) -> bool:
    function = call.func
    last = function.attr if isinstance(function, cst.Attribute) else function
    return isinstance(last, cst.Name) and last.value in INDIFFERENT


def _contains(source: Source, node: cst.CSTNode, texts: set[str]) -> bool:
    return any(
        source.code(part) in texts for part in _nodes(node) if isinstance(part, cst.BaseExpression)
    )


def _nodes(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(current.children)


# Out of the test of the rank --------------------------------------------------------------------


def _take_out(
    rewrite: Rewrite,
    source: Source,
    save: cst.Call,
    place: GuardedStatement,
    texts: dict[cst.CSTNode, str],
) -> bool:
    """Move the call that saves, and the code that it needs, before the rank test around it."""
    statement = layout.statement_of(source, save)
    if not isinstance(statement, cst.Expr) or statement.value is not save:
        return False
    needed, staying = names(statement), []
    statements: list[Statement] = [place.statement]
    for other in reversed(place.before):
        if _binds(other, needed):
            if not isinstance(other, Statement) or not _pure(other, set(texts)):
                return False
            statements.insert(0, other)
            needed |= names(other)
        else:
            staying.append(other)
    if any(len(m.body) != 1 for m in statements if isinstance(m, cst.SimpleStatementLine)):
        return False
    if not all(_bound_everywhere(source, name, statements, place.test) for name in needed):
        return False
    for one in statements:
        start = source.span(one)[0]
        before = tuple(s for s in staying if source.span(s)[0] < start)
        if layout.string_lines(source, one):
            return False
        if not may_overtake(source, one, replace(place, statement=one, before=before)):
            return False
    lines = [
        x for m in statements for x in statement_lines(source, m, substitute(source, m, texts))
    ]
    removed = {node for node in texts if any(is_within(source, node, m) for m in statements)}
    _replace(rewrite, source, {n: text for n, text in texts.items() if n not in removed})
    if set(place.test.body.body) == set(statements):
        rewrite.replace_statement(source, place.test, lines)
        return True
    rewrite.insert_before(source, place.test, lines)
    for one in statements:
        assert isinstance(one, cst.SimpleStatementLine)
        rewrite.delete_statement(source, one.body[0])
    return True


def _bound_everywhere(
    source: Source, name: str, statements: Sequence[cst.CSTNode], test: cst.If
) -> bool:
    """Whether a name is bound on all ranks: no rank test surrounds its binding.

    A test that does not mention the rank is accepted if another statement binds the name too.
    """
    around = set(ancestors(source, test))
    certain = conditional = False
    for use in uses(function_around(source, test), name):
        up = list(ancestors(source, use))
        if not set(statements).isdisjoint(up) or not _is_bound(source, use):
            continue
        tests = [p for p in up if isinstance(p, cst.If) and p not in around]
        if any(RANK_WORDS.search(source.code(p.test)) for p in tests):
            return False
        certain, conditional = certain or not tests, conditional or bool(tests)
    return certain or not conditional


def _is_bound(source: Source, use: cst.Name) -> bool:
    parent = source.parent(use)
    if isinstance(parent, cst.Subscript):
        parent = source.parent(parent)
    return isinstance(
        parent, cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.AsName | cst.Param
    )


def _binds(statement: cst.CSTNode, needed: set[str]) -> bool:
    """Whether a statement assigns to one of the names, or to an item of one."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    return any(
        isinstance(small, cst.Assign) and any(_name(t.target) in needed for t in small.targets)
        for small in statement.body
    )


def _name(target: cst.BaseExpression) -> str:
    return dotted_name(target.value if isinstance(target, cst.Subscript) else target)


def _pure(statement: cst.CSTNode, replaced: set[cst.CSTNode]) -> bool:
    for node in _nodes(statement):
        if isinstance(node, cst.Call) and node not in replaced:
            function = node.func
            last = function.attr if isinstance(function, cst.Attribute) else function
            if not isinstance(last, cst.Name) or last.value not in PURE:
                return False
    return True
