"""Comments above a statement: `# fsdplint: FSDP201 blocks the migration: <reason>`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from fsdplint.source.source import Source, children
from fsdplint.syntax.layout import NEWLINE, line_end, line_indent, start_of

COMMENT = re.compile(r"#\s*fsdplint: FSDP\d+ blocks the migration:")
QUICK = "blocks the migration:"
CLAUSES = (
    cst.SimpleStatementLine
    | cst.BaseCompoundStatement
    | cst.Else
    | cst.Finally
    | cst.ExceptHandler
    | cst.ExceptStarHandler
    | cst.MatchCase
)


def with_blocker_comments(source: Source, marks: Iterable[tuple[cst.CSTNode, str, str]]) -> str:
    """The text with a comment above the code of each mark, and without earlier such comments.

    marks: a node, the code of a rule, and the reason why the node blocks.
    """
    comments: dict[int, dict[str, None]] = {}
    for node, code, reason in marks:
        place = _comment_line(source, node)
        comments.setdefault(place, {}).setdefault(_comment(source, place, code, reason))
    edits = [(start, end, "") for start, end in _own_lines(source)]
    for place, lines in comments.items():
        edits.append((place, place, "".join(sorted(lines))))
    text, position = [], 0
    for start, end, new in sorted(edits, key=lambda one: (one[0], one[1] != one[0])):
        text += [source.text[position:start], new]
        position = end
    return "".join(text) + source.text[position:]


def without_annotations(source: Source) -> str:
    """The text without such comments."""
    return with_blocker_comments(source, ())


def _comment(source: Source, place: int, code: str, reason: str) -> str:
    words = " ".join(reason.split())
    encodable = words.encode(source.encoding, "backslashreplace").decode(source.encoding)
    match = NEWLINE.search(source.text, place)
    newline = match.group() if match else source.newline
    indent = line_indent(source, place)
    return f"{indent}# fsdplint: {code} blocks the migration: {encodable}{newline}"


def _comment_line(source: Source, node: cst.CSTNode) -> int:
    """The offset for a comment about a node: the line on which its statement or clause begins."""
    current: cst.CSTNode | None = node
    while current is not None and not isinstance(current, CLAUSES):
        current = source.parent(current)
    if current is None:
        return 0
    place = source.line_start(start_of(source, current))
    while place and source.text[:place].rstrip("\r\n").endswith("\\"):
        place = source.line_start(place - 1)
    return place


def _own_lines(source: Source) -> list[tuple[int, int]]:
    """The lines that hold only such a comment, with their ends."""
    if QUICK not in source.text:
        return []
    spans = []
    stack: list[cst.CSTNode] = [source.tree]
    while stack:
        node = stack.pop()
        if isinstance(node, cst.EmptyLine):
            if node.comment is not None and COMMENT.match(node.comment.value):
                start = source.span(node.comment)[0]
                spans.append((source.line_start(start), line_end(source, start)[1]))
            continue
        stack.extend(children(node))
    return sorted(spans)
