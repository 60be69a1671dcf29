"""Changes to whole statements, collected and then turned into edits of the text.

They are collected first because they interact: a line `a; b` is split once however many of its
statements change, and only a block that loses all of its statements needs a `pass`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import libcst as cst

from fsdplint.diagnostics.finding import Edit
from fsdplint.source.source import Source
from fsdplint.syntax import layout


@dataclass
class Change:
    """The changes to one statement; lines are without the indentation of the block."""

    above: list[str] = field(default_factory=list)  # of the comments that belong to it
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    replaced: list[str] | None = None
    deleted: bool = False
    keep_comments: bool = True

    @property
    def is_removed(self) -> bool:
        return self.deleted and not self.above and not self.before and not self.after


class Statements:
    """The changes to the statements of one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.changes: dict[cst.CSTNode, Change] = {}
        self.unwrapped: dict[cst.CSTNode, list[str]] = {}
        self._deleted: dict[int, int] | None = None  # by their last line, see `_deleted_lines`

    def small_statements(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """The statements that a change to a node can address: one, or those of a line `a; b`."""
        statement = layout.statement_of(self.source, node)
        if isinstance(statement, cst.SimpleStatementLine):
            return list(statement.body)
        return [statement]

    def change(self, statement: cst.CSTNode) -> Change:
        return self.changes.setdefault(statement, Change())

    def discard(self, start: int, end: int) -> None:
        """Discard the changes to the statements in start..end, apart from lines around it."""
        for statement, change in list(self.changes.items()):
            left, right = self.source.span(statement)
            if layout.start_of(self.source, statement) == start:
                change.replaced, change.deleted = None, False
            elif start <= left and right <= end:
                del self.changes[statement]
        for block in list(self.unwrapped):
            left, right = self.source.span(block)
            if start <= left and right <= end:
                del self.unwrapped[block]

    def edits(self) -> tuple[list[Edit], list[Edit]]:
        """The edits, and separately those that only remove indentation.

        An edit of the second kind may fall inside one of the first, which then supersedes it.
        """
        self._fill_empty_blocks()
        self._deleted = None
        self._after: list[Edit] = []
        result: list[Edit] = []
        lines: dict[layout.Line, None] = {}
        for statement, change in self.changes.items():
            if isinstance(statement, cst.BaseSmallStatement):
                lines.setdefault(layout.line_of(self.source, statement))
            else:
                result.extend(self._compound(statement, change))
        for line in lines:
            result.extend(self._line(line))
        dedents: list[Edit] = []
        for block, header in self.unwrapped.items():
            edit, less = self._unwrap(block, header)
            result.append(edit)
            dedents.extend(less)
        # Lines after a statement precede lines before the next one.
        return self._after + result, dedents

    def _edit(self, start: int, end: int, text: str) -> Edit:
        return Edit(self.source.path, start, end, text)

    def _join_lines(self, lines: list[str], indent: str) -> str:
        """Join lines; the first gets no indentation."""
        text = "".join(
            (self.source.newline + indent if line else self.source.newline) + line for line in lines
        )
        return text[len(self.source.newline + indent) :] if lines and lines[0] else text

    def _whole_lines(self, lines: list[str], indent: str) -> str:
        return "".join((indent + line if line else "") + self.source.newline for line in lines)

    def _indent(self, statement: cst.CSTNode) -> str:
        """The new indentation of a statement, which unwrapped blocks reduce."""
        if isinstance(statement, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            indent = layout.inner_indent(self.source, statement)
        else:
            indent = layout.line_indent(self.source, self.source.span(statement)[0])
        parent = self.source.parent(statement)
        while parent is not None:
            if parent in self.unwrapped:
                outer, inner = self._indents(parent)
                if indent.startswith(inner):
                    indent = outer + indent[len(inner) :]
            parent = self.source.parent(parent)
        return indent

    def _fill_empty_blocks(self) -> None:
        """Add a `pass` to each block that loses its last statement."""
        blocks: dict[cst.CSTNode, None] = {}
        for statement, change in self.changes.items():
            if change.is_removed:
                line = statement
                if isinstance(statement, cst.BaseSmallStatement):
                    line = layout.line_of(self.source, statement)
                block = self.source.parent(line)
                if isinstance(block, cst.IndentedBlock):
                    blocks.setdefault(block)
        for block in blocks:
            assert isinstance(block, cst.IndentedBlock)
            inside: list[cst.CSTNode] = []
            for item in block.body:
                inside.extend(item.body if isinstance(item, cst.SimpleStatementLine) else [item])
            if all(part in self.changes and self.changes[part].is_removed for part in inside):
                change = self.changes[inside[0]]
                change.deleted, change.replaced = False, ["pass"]

    def _insert_after(self, statement: cst.CSTNode, lines: list[str], indent: str) -> None:
        end, newline_first = layout.body_end(self.source, statement)
        if newline_first:
            text = "".join(self.source.newline + (indent + x if x else "") for x in lines)
        else:
            text = self._whole_lines(lines, indent)
        self._after.append(self._edit(end, end, text))

    def _delete_lines(self, start: int, end: int, *, begins: bool = False) -> Edit:
        """Delete whole lines, and following blank lines that would double those above.

        At the start of a file, or of a block (`begins`), all following blank lines are deleted.
        """
        source = self.source
        first = source.line_start(start)
        below = layout.blank_lines_after(source, end)
        above = self._blank_above(first)
        spare = len(below) if begins or above is None else min(above, len(below))
        return self._edit(first, below[spare - 1] if spare else end, "")

    def _blank_above(self, offset: int) -> int | None:
        """The number of blank lines left above a line; None at the start of a file or block."""
        source = self.source
        if self._deleted is None:
            self._deleted = self._deleted_lines()
        number = source.position(offset)[0]
        count = 0
        while number > 1:
            line = source.line(number - 1).strip()
            if number - 1 in self._deleted:
                number = self._deleted[number - 1]
            elif line:
                return None if line.endswith(":") and not count else count
            else:
                number, count = number - 1, count + 1
        return None

    def _deleted_lines(self) -> dict[int, int]:
        """The first line of each deleted statement, by its last line."""
        first_lines = {}
        for statement, change in self.changes.items():
            line = statement
            if isinstance(statement, cst.BaseSmallStatement):
                line = layout.line_of(self.source, statement)
                smalls = [self.changes.get(small) for small in line.body]
            else:
                smalls = [change]
            if all(small is not None and small.is_removed for small in smalls):
                start, end = self.source.span(line)
                last = self.source.position(max(start, end - 1))[0]
                first_lines[last] = self.source.position(start)[0]
        return first_lines

    def _compound(self, statement: cst.CSTNode, change: Change) -> list[Edit]:
        source = self.source
        start = layout.start_of(source, statement)
        indent = self._indent(statement)
        result = []
        lines = change.replaced
        if change.deleted and (change.before or change.after):
            lines = change.before + change.after
            while not lines[0] and len(lines) > 1:  # they would separate it from what is after it
                lines = lines[1:]
            change.before, change.after = [], []
        if change.above:
            at = layout.comment_start(source, source.line_start(start))
            result.append(self._edit(at, at, self._whole_lines(change.above, indent)))
        if change.before:
            at = source.line_start(start)
            result.append(self._edit(at, at, self._whole_lines(change.before, indent)))
        end, at_file_end = layout.body_end(source, statement)
        if lines is not None:
            if not at_file_end:
                end = layout.line_end(source, max(start, end - 2))[0]
            if change.keep_comments:
                lines = self._remaining_lines(layout.comments(source, statement, end), lines)
            result.append(self._edit(start, end, self._join_lines(lines, indent)))
        elif change.deleted:
            result.append(self._delete_lines(start, end, begins=self._begins(statement)))
        if change.after:
            self._insert_after(statement, change.after, indent)
        return result

    @staticmethod
    def _remaining_lines(comments: list[str], lines: list[str]) -> list[str]:
        """The lines, below those of the comments that they lack."""
        text = "\n".join(lines)
        return [comment for comment in comments if comment not in text] + lines

    def _line(self, line: layout.Line) -> list[Edit]:
        """The edits of a line `a; b` or of a one-line suite."""
        changes = [self.changes.get(small) or Change() for small in line.body]
        if all(change.deleted for change in changes):
            keep_comments = changes[0].keep_comments
            replacement = [text for change in changes for text in change.before + change.after]
            if isinstance(line, cst.SimpleStatementLine):
                if all(change.is_removed for change in changes):
                    return self._delete_simple(line, keep_comments)
                if not keep_comments:
                    return self._replace_line(line, replacement)
            if all(change.is_removed for change in changes):
                replacement = ["pass"]
            changes = [Change(replaced=replacement, keep_comments=keep_comments)] + [
                Change(deleted=True) for _ in changes[1:]
            ]
            self.changes.update(zip(line.body, changes, strict=True))
        return self._rewrite_line(line, changes)

    def _replace_line(self, line: layout.Line, lines: list[str]) -> list[Edit]:
        """Replace a line with its comment."""
        start, end = self.source.span(line)
        start = self.source.line_start(start)
        end = layout.line_end(self.source, self.source.span(line.body[-1])[1])[1]
        return [self._edit(start, end, self._whole_lines(lines, self._indent(line)))]

    def _rewrite_line(self, line: layout.Line, changes: list[Change]) -> list[Edit]:
        """Rewrite a line or suite, at least one of whose statements stays or is replaced."""
        indent = self._indent(line)
        spans = [self.source.span(small) for small in line.body]
        edits = []
        for small, span, change in zip(line.body, spans, changes, strict=True):
            if change.replaced is not None:
                if change.keep_comments:
                    comments = layout.comments(self.source, small)
                    text = "\n".join(change.replaced)
                    change.before += [comment for comment in comments if comment not in text]
                edits.append(self._edit(*span, self._join_lines(change.replaced, indent)))
        gaps = _gaps(changes)
        remaining = [number for number, change in enumerate(changes) if not change.deleted]
        split = _is_split(line, changes, gaps)
        edits += self._line_start(line, spans, remaining[0], gaps[0], split)
        for gap, (number, following) in zip(gaps[1:], pairwise(remaining), strict=False):
            end, start = spans[number][1], spans[following][0]
            if split:
                edits.append(self._edit(end, start, self._line_break(gap, indent)))
            elif following > number + 1:
                edits.append(self._edit(spans[number + 1][0], start, ""))
        if remaining[-1] < len(spans) - 1:
            edits.append(self._edit(spans[remaining[-1]][1], spans[-1][1], ""))
        if gaps[-1]:
            self._insert_after(line, gaps[-1], indent)
        return edits

    def _line_start(
        self,
        line: layout.Line,
        spans: list[tuple[int, int]],
        first: int,
        lines: list[str],
        split: bool,
    ) -> list[Edit]:
        """Put lines before the first remaining statement of a line, and delete those before it."""
        start, indent = spans[first][0], self._indent(line)
        if split and isinstance(line, cst.SimpleStatementSuite):
            colon = self.source.span(line.leading_whitespace)[0]
            return [self._edit(colon, start, self._line_break(lines, indent))]
        edits = []
        if lines:
            at = self.source.line_start(spans[0][0])
            edits.append(self._edit(at, at, self._whole_lines(lines, indent)))
        if first:
            edits.append(self._edit(spans[0][0], start, ""))
        return edits

    def _line_break(self, lines: list[str], indent: str) -> str:
        """The text that ends a line, adds further lines, and begins a new one."""
        newline = self.source.newline
        text = "".join(newline + (indent + line if line else "") for line in lines)
        return text + newline + indent

    def _delete_simple(self, line: cst.CSTNode, keep_comments: bool) -> list[Edit]:
        source = self.source
        start, end = source.span(line)
        stop, after = layout.line_end(source, end)
        indent = self._indent(line)
        trailing = source.text[end:stop].lstrip(" \t\f;")
        comments = layout.comments(source, line)
        if trailing.startswith("#") and not layout.PRAGMA.match(trailing):
            comments.append(trailing.rstrip())
        if comments and keep_comments:
            return [self._edit(start, stop, self._join_lines(comments, indent))]
        return [self._delete_lines(start, after, begins=self._begins(line))]

    def _begins(self, line: cst.CSTNode) -> bool:
        """Whether no statement of the block remains before a line."""
        block = self.source.parent(line)
        if not isinstance(block, cst.IndentedBlock):
            return False
        for item in block.body:
            if item is line:
                return True
            parts = item.body if isinstance(item, cst.SimpleStatementLine) else [item]
            if not all(part in self.changes and self.changes[part].is_removed for part in parts):
                return False
        return False

    def _indents(self, block: cst.CSTNode) -> tuple[str, str]:
        """The indentation of a compound statement and that of its body."""
        outer = layout.line_indent(self.source, self.source.span(block)[0])
        body = block.body  # type: ignore[attr-defined]
        if isinstance(body, cst.SimpleStatementSuite):
            return outer, outer
        return outer, layout.line_indent(self.source, layout.start_of(self.source, body.body[0]))

    def _unwrap(self, block: cst.CSTNode, header: list[str]) -> tuple[Edit, list[Edit]]:
        source = self.source
        outer, inner = self._indents(block)
        start = source.span(block)[0]
        body = block.body  # type: ignore[attr-defined]
        indent = self._indent(block)
        if isinstance(body, cst.SimpleStatementSuite):
            first = source.span(body)[0]
            lines = self._remaining_lines(self._header_comments(block, first), header)
            return self._edit(start, first, "".join(x + source.newline + indent for x in lines)), []
        newline = source.span(body.header)[1]
        lines = self._remaining_lines(self._header_comments(block, newline), header)
        at = source.line_start(source.span(block)[0])
        edit = self._edit(at, newline, self._whole_lines(lines, self._indent(block)))
        end, _at_end = layout.body_end(source, block)
        strings = layout.string_lines(source, block)
        dedents = []
        position = newline
        while position < end:
            text = source.text[position:end]
            if text.startswith(inner) and not any(a < position < b for a, b in strings):
                dedents.append(self._edit(position + len(outer), position + len(inner), ""))
            position = layout.line_end(source, position)[1]
        return edit, dedents

    def _header_comments(self, block: cst.CSTNode, end: int) -> list[str]:
        source = self.source
        start = source.span(block)[0]
        return [text for at, text in layout.comments_at(source, block) if start <= at < end]


def _gaps(changes: list[Change]) -> list[list[str]]:
    """The lines before, between and after the remaining statements of a line."""
    gaps: list[list[str]] = [[]]
    for change in changes:
        gaps[-1].extend(change.before)
        if not change.deleted:
            gaps.append([])
        gaps[-1].extend(change.after)
    return gaps


def _is_split(line: layout.Line, changes: list[Change], gaps: list[list[str]]) -> bool:
    """Whether every remaining statement of a line gets a line of its own."""
    suite = isinstance(line, cst.SimpleStatementSuite)
    if any(gaps[1:-1]) or (suite and any(gaps)):
        return True
    several = suite or sum(not change.deleted for change in changes) > 1
    return several and any(
        change.replaced is not None and layout.needs_own_line(change.replaced) for change in changes
    )
