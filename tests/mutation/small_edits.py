"""Small edits of a program that no rule is about: the mistakes that any statement can have.

The operators of `operators/` plant the bug of a rule. The edits here know nothing of rules or of torch: a
statement goes, moves, or comes under a test of the rank; an argument, a context or a conversion goes; a rank
becomes 0. `damage.py` runs the results, to see which of them only several ranks can show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m
from file_syntax import FileSyntax
from mutation_operator import Files
from planting import Changes, Statement, expression, plant, statements, text_of

RANKS = {"rank": "0", "local_rank": "0", "world_size": "1", "get_rank": "0", "get_world_size": "1"}
KEPT = m.SimpleStatementLine([m.Import() | m.ImportFrom() | m.Global() | m.Nonlocal() | m.Pass()])


@dataclass(frozen=True)
class Edit:
    """A program after one edit.

    Attributes:
        kind: what was done.
        file, line: the place in the clean program.
        files: the texts.
    """

    kind: str
    file: str
    line: int
    files: Files


def edits(files: Files) -> Iterator[Edit]:
    """All edits of a program that can be compiled, in the order of its files."""
    for name, text in files.items():
        syntax = FileSyntax.of(text) if name.endswith(".py") else None
        if syntax is None:
            continue
        for kind, at, changes in _changes(syntax.module):
            changed = plant(syntax.module, changes)
            try:
                compile(changed, name, "exec")
            except SyntaxError:
                continue
            if changed != text:
                yield Edit(kind, name, syntax.line(at), files | {name: changed})


def _changes(module: cst.Module) -> Iterator[tuple[str, cst.CSTNode, Changes]]:
    blocks = [module, *m.findall(module, m.IndentedBlock())]
    for block in blocks:
        assert isinstance(block, cst.Module | cst.IndentedBlock)
        yield from _of_statements(block.body)
    for node in m.findall(module, m.If()):
        assert isinstance(node, cst.If)
        test = expression(f"not ({text_of(node.test)})")
        yield "condition negated", node, {node.test: test}
    for node in m.findall(module, m.Call()):
        assert isinstance(node, cst.Call)
        yield from _of_call(node)
    for node in m.findall(module, m.Name("rank") | m.Name("local_rank") | m.Name("world_size")):
        assert isinstance(node, cst.Name)
        yield f"{node.value} is constant", node, {node: cst.Integer(RANKS[node.value])}
    for node in m.findall(module, m.Name("True") | m.Name("False")):
        assert isinstance(node, cst.Name)
        yield "boolean flipped", node, {node: cst.Name(str(node.value != "True"))}


def _of_statements(body: Sequence[cst.BaseStatement]) -> Iterator[tuple[str, Statement, Changes]]:
    for number, one in enumerate(body):
        if not isinstance(one, Statement) or m.matches(one, KEPT):
            continue
        if isinstance(one, cst.FunctionDef | cst.ClassDef):
            continue
        yield "statement dropped", one, {one: []}
        inner = _body(one)
        if isinstance(one, cst.With | cst.If) and inner and not getattr(one, "orelse", None):
            yield f"{type(one).__name__.lower()} dissolved", one, {one: inner}
        if m.matches(one, m.SimpleStatementLine([m.Expr(m.Call())])):
            text = "if torch.distributed.get_rank() == 0:\n    pass\n"
            (guard,) = statements(text)
            assert isinstance(guard, cst.If)
            guarded = guard.with_changes(
                body=cst.IndentedBlock([one.with_changes(leading_lines=())])
            )
            yield "on rank 0", one, {one: [guarded]}
        following = body[number + 1] if number + 1 < len(body) else None
        if not isinstance(following, Statement) or m.matches(following, KEPT):
            continue
        if isinstance(one, cst.SimpleStatementLine) and isinstance(
            following, cst.SimpleStatementLine
        ):
            yield "statements swapped", one, {one: [following], following: [one]}
        if isinstance(one, cst.If | cst.With | cst.For) and inner:
            last = one.with_changes(body=cst.IndentedBlock([*inner, following]))
            yield (
                f"moved into {type(one).__name__.lower()}",
                following,
                {one: [last], following: []},
            )
        if isinstance(one, cst.If | cst.With | cst.For) and len(inner) > 1:
            shorter = one.with_changes(body=cst.IndentedBlock(inner[:-1]))
            kind = f"moved out of {type(one).__name__.lower()}"
            yield kind, one, {one: [shorter, inner[-1]]}


def _body(one: Statement) -> list[Statement]:
    if isinstance(one, cst.If | cst.With | cst.For) and isinstance(one.body, cst.IndentedBlock):
        return [inner for inner in one.body.body if isinstance(inner, Statement)]
    return []


def _of_call(call: cst.Call) -> Iterator[tuple[str, cst.Call, Changes]]:
    for number, one in enumerate(call.args):
        if one.keyword is not None:
            rest = [*call.args[:number], *call.args[number + 1 :]]
            if rest:
                rest[-1] = rest[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            yield "keyword dropped", call, {call: call.with_changes(args=rest)}
    if m.matches(call.func, m.Attribute()) and not call.args:
        assert isinstance(call.func, cst.Attribute)
        yield "method dropped", call, {call: call.func.value}
    if len(call.args) == 1 and call.args[0].keyword is None and not call.args[0].star:
        yield "function dropped", call, {call: call.args[0].value}
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    if isinstance(name, cst.Name) and name.value in ("get_rank", "get_world_size"):
        yield f"{name.value} is constant", call, {call: cst.Integer(RANKS[name.value])}
