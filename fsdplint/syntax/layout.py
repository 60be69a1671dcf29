"""Positions of statements in the text: lines, blocks, indentation, comments.

The functions take a `Source` and return offsets or text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from fsdplint.source.positions import descend as descend
from fsdplint.source.source import Source

NEWLINE = re.compile(r"\r\n|\r|\n")
# Comments for tools about the code on their line, which mean nothing on a line of their own.
PRAGMA = re.compile(
    r"#\s*(noqa|type:|pragma\b|pylint:|pyright:|mypy:|fmt:|isort:|ruff:|nosec|fsdplint:)", re.I
)
COMPOUND = re.compile(r"(if|for|while|with|try|def|class|async|match)\b|@|#")

Line = cst.SimpleStatementLine | cst.SimpleStatementSuite


def line_end(source: Source, offset: int) -> tuple[int, int]:
    """The end of the line that holds `offset`: before its newline, and after it."""
    match = NEWLINE.search(source.text, offset)
    if match is None:
        return len(source.text), len(source.text)
    return match.start(), match.end()


def line_indent(source: Source, offset: int) -> str:
    """The indentation of the line that holds `offset`; a form feed resets it."""
    match = re.compile(r"[ \t\f]*").match(source.text, source.line_start(offset))
    return match.group().rpartition("\f")[2] if match else ""


def in_file(source: Source, text: str) -> str:
    """A text with the file's newlines in place of line feeds."""
    if source.newline == "\n":
        return text
    return re.sub(r"(?<!\r)\n", lambda _: source.newline, text)


def physical_lines(source: Source, lines: Sequence[str]) -> list[str]:
    """The lines of a rule, with leading tabs replaced by levels of the file's indentation."""
    unit = source.tree.default_indent
    result = []
    for line in "\n".join(lines).split("\n") if lines else []:
        bare = line.rstrip("\r").lstrip("\t")
        levels = len(line.rstrip("\r")) - len(bare)
        result.append((unit * levels + bare) if bare.strip() else "")
    return result


def statement_of(source: Source, node: cst.CSTNode) -> cst.CSTNode:
    """The innermost statement that holds a node: a small statement, a line or a compound one.

    For a node of an `elif`, the result is the enclosing `if`. For a line with one small statement,
    the result is the small statement.

    Raises:
        ValueError: no statement holds the node.
    """
    current: cst.CSTNode | None = node
    while current is not None and not isinstance(
        current, cst.SimpleStatementLine | cst.BaseSmallStatement | cst.BaseCompoundStatement
    ):
        current = source.parent(current)
    if current is None:
        raise ValueError("no statement holds the node")
    if isinstance(current, cst.SimpleStatementLine) and len(current.body) == 1:
        return current.body[0]
    while isinstance(current, cst.If):
        parent = source.parent(current)
        if not isinstance(parent, cst.If) or parent.orelse is not current:
            break
        current = parent
    return current


def start_of(source: Source, statement: cst.CSTNode) -> int:
    """The start of a statement, including its decorators."""
    if isinstance(statement, cst.FunctionDef | cst.ClassDef) and statement.decorators:
        return source.span(statement.decorators[0])[0]
    return source.span(statement)[0]


def line_of(source: Source, small: cst.CSTNode) -> Line:
    """The line or one-line suite that holds a small statement."""
    parent = source.parent(small)
    if not isinstance(parent, cst.SimpleStatementLine | cst.SimpleStatementSuite):
        raise ValueError("not a small statement")
    return parent


def inner_indent(source: Source, line: Line) -> str:
    """The indentation of a line's statements (for a suite: as if it were a block)."""
    if isinstance(line, cst.SimpleStatementSuite):
        # Use the clause's own line: an `else: x` has the indentation of its `if`.
        start = source.span(line.leading_whitespace)[0]
        return line_indent(source, start) + source.tree.default_indent
    return line_indent(source, source.span(line)[0])


def body_end(source: Source, statement: cst.CSTNode) -> tuple[int, bool]:
    """The offset for a line after a statement, and whether a newline must come first.

    Comments below a block that are indented deeper than its header belong to the block.
    """
    end = source.span(statement)[1]
    stop, after = line_end(source, end)
    if stop == after:
        return stop, True
    if not isinstance(statement, cst.BaseCompoundStatement):
        return after, False
    width = len(line_indent(source, source.span(statement)[0]).expandtabs())
    position = after
    while position < len(source.text):
        stop, following = line_end(source, position)
        text = source.text[position:stop]
        bare = text.strip()
        if bare and not bare.startswith("#"):
            break
        if bare:
            if len(text[: len(text) - len(text.lstrip())].expandtabs()) <= width:
                break
            after = following
            if stop == following:
                return stop, True
        if stop == following:
            break
        position = following
    return after, False


def comments(source: Source, node: cst.CSTNode, end: int | None = None) -> list[str]:
    """The comments inside a node, in order, without those for tools.

    A statement's trailing comment and the comments above it are not inside it. `end` extends the
    range to this offset.
    """
    start = start_of(source, node)
    end = source.span(node)[1] if end is None else end
    return [text for at, text in comments_at(source, node) if start <= at < end]


def comments_at(source: Source, node: cst.CSTNode) -> list[tuple[int, str]]:
    """The comments below a node with their offsets, in order, without those for tools."""
    result = [part for part in source.descend(node) if isinstance(part, cst.Comment)]
    return sorted((source.span(x)[0], x.value) for x in result if not PRAGMA.match(x.value))


def needs_own_line(lines: Sequence[str]) -> bool:
    """Whether lines cannot be joined by semicolons."""
    return len(lines) != 1 or bool(COMPOUND.match(lines[0])) or "#" in lines[0]


def string_lines(source: Source, node: cst.CSTNode) -> list[tuple[int, int]]:
    """The spans of the multi-line strings in a node."""
    spans = []
    for part in source.descend(node):
        if isinstance(part, cst.SimpleString | cst.FormattedString):
            start, end = source.span(part)
            if NEWLINE.search(source.text, start, end):
                spans.append((start, end))
    return spans


def blank_lines_after(source: Source, offset: int) -> list[int]:
    """The offset after each of the blank lines that begin at `offset`."""
    ends = []
    while offset < len(source.text):
        stop, after = line_end(source, offset)
        if source.text[offset:stop].strip() or stop == after:
            break
        ends.append(after)
        offset = after
    return ends


def missing_above(source: Source, start: int) -> int:
    """The number of blank lines that are missing above an offset for a function to begin there.

    It is 0 at the start of a file or of a notebook's cell, and below a comment, which may belong to
    the line.
    """
    if not start:
        return 0
    above = source.text[:start].split("\n")[-4:-1]
    blank = 0
    while above and not above[-1].strip():
        above.pop()
        blank += 1
    if above and (above[-1].startswith("#") or _is_start_of_cell(above[-1])):
        return 0
    return max(0, 2 - blank)


def _is_start_of_cell(line: str) -> bool:
    from fsdplint.source.notebooks import is_start_of_cell  # few programs are notebooks

    return is_start_of_cell(line)


def comment_start(source: Source, at: int) -> int:
    """The start of the comment that belongs to the line at an offset; `at` if there is none.

    A comment belongs to a line if nothing is between them. A comment at the start of a file belongs
    to the file.
    """
    start = at
    while start:
        above = source.line_start(start - 1)
        if not source.text[above:start].startswith("#"):
            return start
        start = above
    return at
