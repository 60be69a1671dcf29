"""The comments above and in a policy that becomes a loop before the model is sharded."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.constructor.paragraphs import (
    comment_lines,
    delete_comments,
    span_of_lines,
)
from fsdplint.migration.constructor.policy import Policy
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import (
    blank_lines_after,
    comments_at,
    descend,
    statement_of,
)


def comments_above_loop(policy: Policy, source: Source, call: cst.Call) -> list[str]:
    """The comments of policies that move to the loop."""
    found: list[str] = []
    for one, definition in policy.variables:
        if one is source and _is_paragraph(source, call, definition.statement):
            if not _is_directly_before(source, call, definition.statement):
                lines = comment_lines(source, definition.statement)
                found += [source.line(number).strip() for number in lines]
    return found


def move_comments(migration: Migration, policy: Policy, source: Source, call: cst.Call) -> None:
    """Delete the comments that moved, or the blank lines between a comment and the new lines."""
    for one, definition in policy.variables:
        if one is not source or not _is_paragraph(source, call, definition.statement):
            continue
        end = span_of_lines(source, definition.statement)[1]
        below = blank_lines_after(source, end)
        if _is_directly_before(source, call, definition.statement):
            if below:
                migration.rewrite.delete(source, end, below[-1])
            continue
        delete_comments(migration, source, definition.statement)


def _is_paragraph(source: Source, call: cst.Call, statement: cst.CSTNode) -> bool:
    """Whether comments stand above a policy in the function of a call, and only for it."""
    if function_around(source, statement) is not function_around(source, call):
        return False
    if not isinstance(statement, cst.BaseSmallStatement) or not comment_lines(source, statement):
        return False
    if not isinstance(source.parent(statement), cst.SimpleStatementLine):
        return False
    return bool(blank_lines_after(source, span_of_lines(source, statement)[1]))


def _is_directly_before(source: Source, call: cst.Call, statement: cst.CSTNode) -> bool:
    """Whether only blank lines are between a policy and the statement of a call."""
    end = span_of_lines(source, statement)[1]
    below = blank_lines_after(source, end)
    other = source.span(statement_of(source, call))[0]
    return source.line_start(other) == (below[-1] if below else end)


def comments_in_policy(policy: Policy, source: Source) -> list[str]:
    """The comments in the statements of a policy, which are deleted, without values in comments."""
    return [
        text
        for home, definition in policy.variables
        if home is source
        for offset, text in comments_at(
            source, source.parent(definition.statement) or definition.statement
        )
        if offset > source.span(definition.statement)[0] and not _is_value(source, text)
    ]


def _is_value(source: Source, comment: str) -> bool:
    """Whether a comment is the code of a value: a number, or names that the file binds."""
    try:
        value = cst.parse_expression(comment.strip("# \t,"))
    except cst.ParserSyntaxError:
        return False
    if isinstance(value, cst.BaseNumber):
        return True
    names = [part.value for part in descend(value) if isinstance(part, cst.Name)]
    module = bindings_of(source).module
    return isinstance(value, cst.Name | cst.Call) and all(module.binds(name) for name in names)
