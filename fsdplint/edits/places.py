"""Places of events in the code, and their relative order.

The fixes of rules use these functions. Each returns None if the answer is uncertain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.dotted import bound_by, dotted_name, dotted_names, leaves, part_of
from fsdplint.trace import Event, Site

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

Block = cst.Module | cst.IndentedBlock
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


@dataclass(frozen=True)
class ShardStatement:
    """A statement that only calls `fully_shard(module, ...)`, perhaps assigning the result.

    module: the text by which the following statements refer to the sharded module.
    """

    source: Source
    statement: cst.SimpleStatementLine
    call: cst.Call
    module: str


def shard_statement(site: Site) -> ShardStatement | None:
    """The statement at the site of a `fully_shard` call, if it has this simple form."""
    if not isinstance(site, NodeSite) or not isinstance(site.node, cst.Call):
        return None
    source, call = site.source, site.node
    statement = source.statement(call)
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    argument = module_argument(call)
    if isinstance(small, cst.Expr) and small.value is call and argument is not None:
        target: cst.BaseExpression = argument
    elif isinstance(small, cst.Assign) and small.value is call and len(small.targets) == 1:
        target = small.targets[0].target
    else:
        return None
    if not isinstance(target, cst.Name | cst.Attribute | cst.Subscript):
        return None
    return ShardStatement(source, statement, call, source.code(target))


def module_argument(call: cst.Call) -> cst.BaseExpression | None:
    """The expression of the module that a `fully_shard` call shards."""
    for number, argument in enumerate(call.args):
        if argument.star:
            return None
        if (argument.keyword is None and number == 0) or (
            argument.keyword is not None and argument.keyword.value == "module"
        ):
            return argument.value
    return None


def options_text(source: Source, call: cst.Call, *, without: Sequence[str] = ()) -> str:
    """The options of a `fully_shard` call as code, each preceded by a comma."""
    parts = []
    for argument in call.args:
        if argument.star or (
            argument.keyword is not None and argument.keyword.value not in ("module", *without)
        ):
            start, _ = source.span(argument)
            _, end = source.span(argument.value)
            parts.append(", " + source.text[start:end])
    return "".join(parts)


@dataclass(frozen=True)
class Meeting:
    """The block that holds two events, and the statements of the block around each of them."""

    source: Source
    block: Block
    first: Statement
    second: Statement


def common_block(first: Event, second: Event) -> Meeting | None:
    """The common block of two events: in the first frame in which their call stacks differ."""
    for one, other in zip((*first.stack, first.site), (*second.stack, second.site), strict=False):
        if one == other:
            continue
        if not isinstance(one, NodeSite) or not isinstance(other, NodeSite):
            return None
        if one.source is not other.source:
            return None
        blocks = dict(blocks_around(one))
        for block, statement in blocks_around(other):
            if block in blocks:
                first_statement = blocks[block]
                return (
                    None
                    if first_statement is statement
                    else Meeting(one.source, block, first_statement, statement)
                )
        return None
    return None


def blocks_around(site: NodeSite) -> Iterator[tuple[Block, Statement]]:
    """The blocks around a node up to its function, innermost first, each with its statement."""
    node: cst.CSTNode | None = site.node
    while node is not None and not isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda):
        parent = site.source.parent(node)
        if isinstance(parent, cst.Module | cst.IndentedBlock) and isinstance(
            node, cst.SimpleStatementLine | cst.BaseCompoundStatement
        ):
            yield parent, node
        node = parent


def last_meeting(first: Event, others: Sequence[Event]) -> Meeting | None:
    """The common block of the first event and the last of the others; all must share one block."""
    places = [common_block(first, other) for other in others]
    if not places or None in places:
        return None
    known = [place for place in places if place is not None]
    blocks = {id(place.block) for place in known}
    if len(blocks) != 1:
        return None
    body = list(known[0].block.body)
    return max(known, key=lambda place: body.index(place.second))


def modules_loop(site: Site) -> tuple[Source, cst.Call] | None:
    """The call of `x.modules()` (or `named_modules()`) that the loop around a call iterates."""
    if not isinstance(site, NodeSite):
        return None
    node: cst.CSTNode | None = site.node
    while node is not None and not isinstance(node, cst.FunctionDef | cst.Lambda):
        if isinstance(node, cst.BaseComp):
            node = node.for_in
        if isinstance(node, cst.For | cst.CompFor):
            break
        node = site.source.parent(node)
    if not isinstance(node, cst.For | cst.CompFor):
        return None
    iterable = node.iter
    if (isinstance(node, cst.For) and leaves(node.body)) or not isinstance(iterable, cst.Call):
        return None
    if not isinstance(iterable.func, cst.Attribute) or iterable.args:
        return None
    if iterable.func.attr.value not in ("modules", "named_modules"):
        return None
    return site.source, iterable


# After the sharding of a model's parts ----------------------------------------------------------


@dataclass(frozen=True)
class AfterShards:
    """The statement after which every part of a model is sharded: a loop or a simple statement."""

    source: Source
    statement: Statement
    call: cst.Call
    loops: tuple[cst.For, ...]

    def mentions_loop(self, text: str) -> bool:
        """Whether code reads a variable of the loops."""
        names = {dotted_name(n) for loop in self.loops for n in dotted_names(loop.target)}
        return any(re.search(rf"(?<![\w.]){re.escape(name)}\b", text) for name in names)


def after_shards(event: Event) -> AfterShards | None:
    """The place after the last `fully_shard` of a model's parts, in the same function."""
    site = event.site
    if event.in_loop or not isinstance(site, NodeSite) or not isinstance(site.node, cst.Call):
        return None
    statements = [statement for _, statement in blocks_around(site)]
    if not statements:
        return None
    last, loops = 0, []
    for number, statement in enumerate(statements):
        if isinstance(statement, cst.For):
            last = number
            loops.append(statement)
    selected = statements[last]
    if leaves(selected) or isinstance(site.source.parent(statements[0]), cst.ClassDef):
        return None
    return AfterShards(site.source, selected, site.node, tuple(loops))


def expression_of(program: Program, place: AfterShards, modules: set[str]) -> str | None:
    """How the code at a place refers to a module.

    The result is a dotted name in its statement, or in an earlier one of the block, that refers to
    one of `modules` and to nothing else.
    """
    block = place.source.parent(place.statement)
    if not isinstance(block, cst.Module | cst.IndentedBlock):
        return None
    body = list(block.body)
    number = body.index(place.statement)
    changed: set[str] = set()
    for statement in reversed(body[: number + 1]):
        for name in dotted_names(statement):
            part: cst.BaseExpression = name
            while isinstance(part, cst.Name | cst.Attribute):
                if _stands_for(program, part, modules) and not any(
                    part_of(dotted_name(part), c) for c in changed
                ):
                    return dotted_name(part)
                part = part.value if isinstance(part, cst.Attribute) else cst.Ellipsis()
        changed |= bound_by(statement)
    return None


def _stands_for(program: Program, node: cst.CSTNode, modules: set[str]) -> bool:
    from fsdplint.interpreter.values import ModuleValue

    values = program.values(node)
    return bool(values) and all(isinstance(v, ModuleValue) and v.id in modules for v in values)
