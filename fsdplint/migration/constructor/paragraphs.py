"""Statements with comments above them, and blank lines around both."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.layout import blank_lines_after, line_end, line_of


def delete_comments_of(migration: Migration, source: Source, statement: cst.CSTNode) -> None:
    """Delete the comments above a statement that is deleted, if they stand above nothing else."""
    line = source.parent(statement)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return
    if not comment_lines(source, statement):
        return
    end = span_of_lines(source, statement)[1]
    if blank_lines_after(source, end) or end >= len(source.text):
        delete_comments(migration, source, statement)


def delete_comments(migration: Migration, source: Source, statement: cst.CSTNode) -> None:
    """Delete the comments above a statement, and the blank lines above them."""
    start = first = span_of_lines(source, statement)[0]
    for _ in comment_lines(source, statement):
        first = source.line_start(first - 1)
    while first and not source.line(source.position(first - 1)[0]).strip():
        first = source.line_start(first - 1)  # the blank lines below stay
    migration.rewrite.delete(source, first, start)


def comment_lines(source: Source, statement: cst.CSTNode) -> list[int]:
    """The numbers of the lines of comments directly above a statement."""
    found: list[int] = []
    number = source.position(source.span(statement)[0])[0] - 1
    while number > 0 and source.line(number).lstrip().startswith("#"):
        found.insert(0, number)
        number -= 1
    return found


def span_of_lines(source: Source, statement: cst.CSTNode) -> tuple[int, int]:
    """The lines of a statement, as offsets."""
    start, end = source.span(line_of(source, statement))
    return source.line_start(start), line_end(source, end)[1]
