"""Where events stand in the code relative to each other, and which statements may change places.

Used by the fixes of rules; everything here says None rather than guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.program.source import NodeSite, Source
from fsdplint.trace import Event, Site

if TYPE_CHECKING:
    from fsdplint.program import Program
    from fsdplint.rewrite import Rewrite

Block = cst.Module | cst.IndentedBlock
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
_BINDERS = (
    cst.AssignTarget,
    cst.AnnAssign,
    cst.AugAssign,
    cst.NamedExpr,
    cst.For,
    cst.CompFor,
)
_LEAVES = (cst.Return, cst.Raise, cst.Break, cst.Continue)


@dataclass(frozen=True)
class ShardStatement:
    """A statement that does nothing but `fully_shard(module, ...)`, perhaps assigned.

    module: the text by which the statements after it call the sharded module.
    """

    source: Source
    statement: cst.SimpleStatementLine
    call: cst.Call
    module: str


def shard_statement(site: Site) -> ShardStatement | None:
    """The statement at a `fully_shard` call's site, if it is of the plain form."""
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
    """The options of a `fully_shard` call as code, each with a comma before it."""
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
    """The block in which two events stand, and the statements of it that hold them."""

    source: Source
    block: Block
    first: Statement
    second: Statement


def meeting(first: Event, second: Event) -> Meeting | None:
    """Where two events meet: in the first frame of their call stacks in which they differ."""
    for one, other in zip((*first.stack, first.site), (*second.stack, second.site), strict=False):
        if one == other:
            continue
        if not isinstance(one, NodeSite) or not isinstance(other, NodeSite):
            return None
        if one.source is not other.source:
            return None
        blocks = dict(_blocks(one))
        for block, statement in _blocks(other):
            if block in blocks:
                mine = blocks[block]
                return None if mine is statement else Meeting(one.source, block, mine, statement)
        return None
    return None


def _blocks(site: NodeSite) -> Iterator[tuple[Block, Statement]]:
    """The blocks around a node, innermost first, up to its function, each with its statement."""
    node: cst.CSTNode | None = site.node
    while node is not None and not isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda):
        parent = site.source.parent(node)
        if isinstance(parent, cst.Module | cst.IndentedBlock) and isinstance(
            node, cst.SimpleStatementLine | cst.BaseCompoundStatement
        ):
            yield parent, node
        node = parent


# Names -----------------------------------------------------------------------------------------


def dotted(node: cst.CSTNode) -> Iterator[cst.Name | cst.Attribute]:
    """The longest dotted names (`self.model.parameters`) in a node; keywords of calls left out."""
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


def path_of(node: cst.CSTNode) -> str:
    """A dotted name as text without whitespace; "" for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = path_of(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""


def mentions(node: cst.CSTNode, names: set[str]) -> bool:
    """Whether one of the (dotted) names, or something read off it, stands in the node."""
    return any(_part_of(path, name) for path in map(path_of, dotted(node)) for name in names)


def bound_by(statement: cst.CSTNode) -> set[str]:
    """The dotted names that a statement assigns anywhere in it, functions' own bodies included."""
    targets: list[cst.CSTNode] = []
    stack: list[cst.CSTNode] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, _BINDERS):
            targets.append(node.target)
        elif isinstance(node, cst.AsName):
            targets.append(node.name)
        stack.extend(node.children)
    return {path_of(name) for target in targets for name in dotted(target)}


def names_in_scope(source: Source, node: cst.CSTNode) -> set[str]:
    """The names that the function (or module) around a node uses, so that a new one is free.

    What functions in it call by names of their own does not count.
    """
    scope: cst.CSTNode | None = node
    while scope is not None and not isinstance(scope, cst.FunctionDef):
        scope = source.parent(scope)
    top = scope if scope is not None else source.tree
    names: set[str] = set()
    stack = list(top.children)
    while stack:
        current = stack.pop()
        if isinstance(current, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            names |= {path_of(name).split(".")[0] for name in dotted(current)} - bound_by(current)
        elif isinstance(current, cst.Name):
            names.add(current.value)
        else:
            stack.extend(current.children)
    return names


def assigned(statement: cst.CSTNode) -> set[str] | None:
    """What a plain assignment on a line of its own binds; None for any other statement."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    if not isinstance(statement.body[0], cst.Assign | cst.AnnAssign):
        return None
    return bound_by(statement)


def leaves(statement: cst.CSTNode) -> bool:
    """Whether the statement may leave its block early."""
    return isinstance(statement, _LEAVES) or any(map(leaves, statement.children))


# Moving statements -----------------------------------------------------------------------------


def move_after(rewrite: Rewrite, program: Program, place: Meeting) -> bool:
    """Move the assignment `place.first`, and what belongs to it, to right after `place.second`.

    Along with it go the assignments in between that use what it binds (a scheduler made of an
    optimizer), and those before it that take something from a model for it (a list of parameters).

    Returns:
        False, with nothing rewritten, where a statement in between uses what would move, or where
        a name that the moved code reads means something else after the move.
    """
    body = [s for s in place.block.body if isinstance(s, Statement)]
    first, second = body.index(place.first), body.index(place.second)
    if first >= second or any(leaves(s) for s in body[first + 1 : second + 1]):
        return False
    moving = _moving(program, body, first, second)
    if moving is None:
        return False
    values = [_value(body[number]) for number in moving]
    used = {path_of(name) for value in values for name in dotted(value)}
    models = set().union(*(_models(program, value) for value in values))
    for number in range(moving[0], second + 1):
        changed = set() if number in moving else bound_by(body[number]) - models
        if any(_part_of(path, name) for path in used for name in changed):
            return False
    return _cut_and_paste(rewrite, place.source, [body[n] for n in moving], body[second])


def _moving(
    program: Program, body: Sequence[Statement], first: int, second: int
) -> list[int] | None:
    """The numbers of the statements that have to move together, in order."""
    names = assigned(body[first])
    if names is None:
        return None
    moving = {first}
    names = set(names)
    pending = [first]
    while pending:  # backwards: what was taken from the model for these statements
        number = pending.pop()
        for name in dotted(_value(body[number])):
            source = None if _models(program, name) else _definition(body, number, path_of(name))
            if source is None or source in moving or not _models(program, _value(body[source])):
                continue
            bound = assigned(body[source])
            if bound is None:
                return None
            moving.add(source)
            names |= bound
            pending.append(source)
    for number in range(min(moving) + 1, second + 1):  # forwards: what is made of them
        if number in moving or not mentions(body[number], names):
            continue
        bound = assigned(body[number])
        if bound is None or number == second:
            return None
        moving.add(number)
        names |= bound
    return sorted(moving)


def _definition(body: Sequence[Statement], before: int, path: str) -> int | None:
    """The number of the last statement before another that binds a name."""
    for number in range(before - 1, -1, -1):
        if any(_part_of(path, bound) for bound in bound_by(body[number])):
            return number
    return None


def _part_of(path: str, name: str) -> bool:
    """Whether a dotted path is the name or something read off it."""
    return path == name or path.startswith(name + ".")


def _value(statement: cst.CSTNode) -> cst.CSTNode:
    """The right side of an assignment; the statement itself where it is another."""
    if isinstance(statement, cst.SimpleStatementLine):
        small = statement.body[0]
        if isinstance(small, cst.Assign | cst.AnnAssign) and small.value is not None:
            return small.value
    return statement


def _models(program: Program, node: cst.CSTNode) -> set[str]:
    """The dotted names in a node that stand for modules."""
    from fsdplint.program.values import ModuleValue

    result: set[str] = set()
    for name in dotted(node):
        part: cst.BaseExpression = name
        while True:
            if any(isinstance(value, ModuleValue) for value in program.values(part)):
                result.add(path_of(part))
                break
            if not isinstance(part, cst.Attribute):
                break
            part = part.value
    return result


def _cut_and_paste(
    rewrite: Rewrite, source: Source, statements: Sequence[Statement], after: Statement
) -> bool:
    """Move whole lines, with the comments directly above them and at their end."""
    spans = []
    for statement in statements:
        span = whole_lines(source, statement)
        if span is None:
            return False
        spans.append(span)
    target = whole_lines(source, after)
    if target is None:
        return False
    text = "".join(source.text[start:end] for start, end in spans)
    if not text.endswith(("\n", "\r")):
        text += source.newline
    end = target[1]
    if not source.text[:end].endswith(("\n", "\r")):
        text = source.newline + text.rstrip("\r\n")
    for start, stop in spans:
        rewrite.delete(source, *_with_blank_line(source, start, stop))
    rewrite.insert(source, end, text)
    return True


def whole_lines(source: Source, statement: Statement) -> tuple[int, int] | None:
    """A statement's lines with the comments directly above it; None where it shares a line."""
    start, end = source.span(statement)
    text = source.text
    first = source.line_start(start)
    if text[first:start].strip():
        return None
    line = source.position(first)[0]
    while line > 1 and source.line(line - 1).strip().startswith("#"):
        line -= 1
        first = source.line_start(first - 1)
    last = max(end - 1, start)
    while last < len(text) and text[last] not in "\r\n":
        last += 1
    tail = text[end:last].strip()
    if tail and not tail.startswith("#"):
        return None
    if text[last : last + 2] == "\r\n":
        last += 2
    elif last < len(text):
        last += 1
    return first, last


def _with_blank_line(source: Source, start: int, end: int) -> tuple[int, int]:
    """Widen a cut by a blank line after it where there is one before it as well (or nothing)."""
    number, _ = source.position(start)
    before = number == 1 or not source.line(number - 1).strip()
    after_line, column = source.position(end)
    if before and column == 1 and end < len(source.text) and not source.line(after_line).strip():
        rest = source.text[end:]
        end += len(rest) - len(rest.lstrip(" \t"))
        end += 2 if source.text[end : end + 2] == "\r\n" else 1
    return start, end


# After the sharding of a model's parts ----------------------------------------------------------


@dataclass(frozen=True)
class AfterShards:
    """The statement after which every part of a model is sharded: a loop, or a plain statement."""

    source: Source
    statement: Statement
    call: cst.Call
    loops: tuple[cst.For, ...]

    def mentions_loop(self, text: str) -> bool:
        """Whether code reads a variable of the loops."""
        names = {path_of(n) for loop in self.loops for n in dotted(loop.target)}
        return any(re.search(rf"(?<![\w.]){re.escape(name)}\b", text) for name in names)


def after_shards(event: Event) -> AfterShards | None:
    """Where to go on after the last `fully_shard` of a model's parts, in the same function."""
    site = event.site
    if event.in_loop or not isinstance(site, NodeSite) or not isinstance(site.node, cst.Call):
        return None
    statements = [statement for _, statement in _blocks(site)]
    if not statements:
        return None
    last, loops = 0, []
    for number, statement in enumerate(statements):
        if isinstance(statement, cst.For):
            last = number
            loops.append(statement)
    chosen = statements[last]
    if leaves(chosen) or isinstance(site.source.parent(statements[0]), cst.ClassDef):
        return None
    return AfterShards(site.source, chosen, site.node, tuple(loops))


def expression_of(program: Program, place: AfterShards, modules: set[str]) -> str | None:
    """How the code at a place calls a module: a dotted name in its statement, or in one before it
    in the block, that stands for one of `modules` and for nothing else.
    """
    block = place.source.parent(place.statement)
    if not isinstance(block, cst.Module | cst.IndentedBlock):
        return None
    body = list(block.body)
    number = body.index(place.statement)
    changed: set[str] = set()
    for statement in reversed(body[: number + 1]):
        for name in dotted(statement):
            part: cst.BaseExpression = name
            while isinstance(part, cst.Name | cst.Attribute):
                if _stands_for(program, part, modules) and not any(
                    _part_of(path_of(part), c) for c in changed
                ):
                    return path_of(part)
                part = part.value if isinstance(part, cst.Attribute) else cst.Ellipsis()
        changed |= bound_by(statement)
    return None


def _stands_for(program: Program, node: cst.CSTNode, modules: set[str]) -> bool:
    from fsdplint.program.values import ModuleValue

    values = program.values(node)
    return bool(values) and all(isinstance(v, ModuleValue) and v.id in modules for v in values)


# The order of shardings --------------------------------------------------------------------------


def modules_loop(site: Site) -> tuple[Source, cst.Call] | None:
    """The `x.modules()` (or `named_modules()`) that the loop around a call runs over."""
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


def in_loop_of(site: Site, call: Site) -> bool:
    """Whether a place (a condition) lies in the loop that stands around a call."""
    if not isinstance(site, NodeSite) or not isinstance(call, NodeSite):
        return False
    node: cst.CSTNode | None = call.node
    while node is not None and not isinstance(node, cst.For | cst.BaseComp | cst.FunctionDef):
        node = call.source.parent(node)
    inner: cst.CSTNode | None = site.node
    while inner is not None and inner is not node:
        inner = site.source.parent(inner)
    return inner is not None and not isinstance(node, cst.FunctionDef)


def last_meeting(first: Event, others: Sequence[Event]) -> Meeting | None:
    """Where the first event meets the last of the others, all of them in one block."""
    places = [meeting(first, other) for other in others]
    if not places or None in places:
        return None
    known = [place for place in places if place is not None]
    blocks = {id(place.block) for place in known}
    if len(blocks) != 1:
        return None
    body = list(known[0].block.body)
    return max(known, key=lambda place: body.index(place.second))


def move_shard_after(
    rewrite: Rewrite, site: Site, place: Meeting, children: Sequence[Event]
) -> bool:
    """Move the statement that shards a root to behind those that shard its parts.

    Returns:
        False, with nothing rewritten, where it does more than that, or where another statement in
        between reads the root (reading an attribute of it into a name is fine).
    """
    shard = shard_statement(site)
    if shard is None or shard.statement is not place.first:
        return False
    argument = module_argument(shard.call)
    if argument is None or shard.source.code(argument) != shard.module:
        return False
    body = [s for s in place.block.body if isinstance(s, Statement)]
    first, second = body.index(place.first), body.index(place.second)
    holding = {
        id(statement)
        for child in children
        if isinstance(child.site, NodeSite)
        for _, statement in _blocks(child.site)
    }
    options = {path_of(n) for n in dotted(shard.call)} - {shard.module}
    for statement in body[first + 1 : second + 1]:
        bound = bound_by(statement)
        if leaves(statement) or any(_part_of(o, b) for o in options for b in bound):
            return False
        if id(statement) in holding or not mentions(statement, {shard.module}):
            continue
        if assigned(statement) is None or not isinstance(
            _value(statement), cst.Name | cst.Attribute
        ):
            return False
        if any(_part_of(shard.module, name) for name in bound):
            return False
    return _cut_and_paste(rewrite, place.source, [place.first], place.second)
