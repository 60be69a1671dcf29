"""Move statements: which may move, what moves with them, and the edits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.edits.places import (
    Meeting,
    Statement,
    blocks_around,
    module_argument,
    shard_statement,
)
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.dotted import (
    assigned_names,
    bound_by,
    dotted_name,
    dotted_names,
    leaves,
    mentions,
    part_of,
)
from fsdplint.trace import Event, Site

if TYPE_CHECKING:
    from fsdplint.edits.rewrite import Rewrite
    from fsdplint.interpreter import Program


def move_after(rewrite: Rewrite, program: Program, place: Meeting) -> bool:
    """Move the assignment `place.first`, and what belongs to it, directly after `place.second`.

    The assignments in between that use what it binds (a scheduler for an optimizer) move too. So do
    earlier assignments that take something from a model for it (a list of parameters).

    Returns:
        False, without changes, if a statement in between uses what would move, or if a name in the
            moved code would mean something else after the move.
    """
    body = [s for s in place.block.body if isinstance(s, Statement)]
    first, second = body.index(place.first), body.index(place.second)
    if first >= second or any(leaves(s) for s in body[first + 1 : second + 1]):
        return False
    moving = _moving(program, body, first, second)
    if moving is None:
        return False
    values = [_value(body[number]) for number in moving]
    names = {dotted_name(name) for value in values for name in dotted_names(value)}
    models = set().union(*(_models(program, value) for value in values))
    for number in range(moving[0], second + 1):
        changed = set() if number in moving else bound_by(body[number]) - models
        if any(part_of(path, name) for path in names for name in changed):
            return False
    return _cut_and_paste(rewrite, place.source, [body[n] for n in moving], body[second])


def moved_with(program: Program, place: Meeting) -> list[Statement]:
    """The statements that `move_after` would move."""
    body = [s for s in place.block.body if isinstance(s, Statement)]
    moving = _moving(program, body, body.index(place.first), body.index(place.second))
    return [body[number] for number in moving or ()]


def _moving(
    program: Program, body: Sequence[Statement], first: int, second: int
) -> list[int] | None:
    """The indices of the statements that must move together, in order."""
    names = assigned_names(body[first])
    if names is None:
        return None
    moving = {first}
    names = set(names)
    pending = [first]
    while pending:  # backwards: values of the model that these statements use
        number = pending.pop()
        for name in dotted_names(_value(body[number])):
            source = (
                None if _models(program, name) else _definition(body, number, dotted_name(name))
            )
            if source is None or source in moving or not _models(program, _value(body[source])):
                continue
            bound = assigned_names(body[source])
            if bound is None:
                return None
            moving.add(source)
            names |= bound
            pending.append(source)
    for number in range(min(moving) + 1, second + 1):  # forwards: values that are built from them
        if number in moving or not mentions(body[number], names):
            continue
        bound = assigned_names(body[number])
        if bound is None or number == second:
            return None
        moving.add(number)
        names |= bound
    return sorted(moving)


def _definition(body: Sequence[Statement], before: int, path: str) -> int | None:
    """The index of the last statement before another that binds a name."""
    for number in range(before - 1, -1, -1):
        if any(part_of(path, bound) for bound in bound_by(body[number])):
            return number
    return None


def _value(statement: cst.CSTNode) -> cst.CSTNode:
    """The right side of an assignment; the statement itself if it is not an assignment."""
    if isinstance(statement, cst.SimpleStatementLine):
        small = statement.body[0]
        if isinstance(small, cst.Assign | cst.AnnAssign) and small.value is not None:
            return small.value
    return statement


def _models(program: Program, node: cst.CSTNode) -> set[str]:
    """The dotted names in a node that refer to modules."""
    from fsdplint.interpreter.values import ModuleValue

    result: set[str] = set()
    for name in dotted_names(node):
        part: cst.BaseExpression = name
        while True:
            if any(isinstance(value, ModuleValue) for value in program.values(part)):
                result.add(dotted_name(part))
                break
            if not isinstance(part, cst.Attribute):
                break
            part = part.value
    return result


def _cut_and_paste(
    rewrite: Rewrite, source: Source, statements: Sequence[Statement], after: Statement
) -> bool:
    """Move whole lines, with the comments directly above them and their trailing comments."""
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
    """A statement's lines with the comments directly above it; None if it shares a line."""
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
    """Extend a cut by the blank line after it, if a blank line or nothing precedes it."""
    number, _ = source.position(start)
    before = number == 1 or not source.line(number - 1).strip()
    after_line, column = source.position(end)
    if before and column == 1 and end < len(source.text) and not source.line(after_line).strip():
        rest = source.text[end:]
        end += len(rest) - len(rest.lstrip(" \t"))
        end += 2 if source.text[end : end + 2] == "\r\n" else 1
    return start, end


def move_shard_after(
    rewrite: Rewrite,
    site: Site,
    place: Meeting,
    children: Sequence[Event],
    *,
    in_calls: bool = False,
) -> bool:
    """Move the statement that shards a root after those that shard (or add) some of its children.

    in_calls: the children may be sharded in functions that these statements call.

    Returns:
        False, without changes, if the statement does more than that, or if a statement in between
            reads the root. Assigning one of its attributes to a name is allowed.
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
        for at in ((*child.stack, child.site) if in_calls else (child.site,))
        if isinstance(at, NodeSite)
        for _, statement in blocks_around(at)
    }
    options = {dotted_name(n) for n in dotted_names(shard.call)} - {shard.module}
    for statement in body[first + 1 : second + 1]:
        bound = bound_by(statement)
        if leaves(statement) or any(part_of(o, b) for o in options for b in bound):
            return False
        if id(statement) in holding or not mentions(statement, {shard.module}):
            continue
        if assigned_names(statement) is None or not isinstance(
            _value(statement), cst.Name | cst.Attribute
        ):
            return False
        if any(part_of(shard.module, name) for name in bound):
            return False
    return _cut_and_paste(rewrite, place.source, [place.first], place.second)
