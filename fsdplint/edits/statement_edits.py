"""Changes to whole statements, gathered and then turned into edits of the text.

They are gathered first because they act on each other: a line `a; b` is split once however many of
its statements change, and only a block that loses all of its statements needs a `pass`.
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
    """What happens to one statement; lines are without the indentation of the block."""

    above: list[str] = field(default_factory=list)  # of the comments that belong to it
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    replaced: list[str] | None = None
    deleted: bool = False
    keep_comments: bool = True

    @property
    def gone(self) -> bool:
        return self.deleted and not self.above and not self.before and not self.after


class Statements:
    """The changes to the statements of one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.changes: dict[cst.CSTNode, Change] = {}
        self.unwrapped: dict[cst.CSTNode, list[str]] = {}
        self._deleted: dict[int, int] | None = None  # by their last line, see `_deleted_lines`

    def smalls(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """The changeable statements that a node stands for: one, or those of a line `a; b`."""
        statement = layout.statement_of(self.source, node)
        if isinstance(statement, cst.SimpleStatementLine):
            return list(statement.body)
        return [statement]

    def change(self, statement: cst.CSTNode) -> Change:
        return self.changes.setdefault(statement, Change())

    def edits(self) -> tuple[list[Edit], list[Edit]]:
        """The edits, and apart from them those that only take indentation away.

        The second kind may fall inside an edit of the first, which then stands for it.
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
        # Lines after a statement come before those that are put before the next one.
        return self._after + result, dedents

    def _edit(self, start: int, end: int, text: str) -> Edit:
        return Edit(self.source.path, start, end, text)

    def _join_lines(self, lines: list[str], indent: str) -> str:
        """Lines one below the other, the first without its indentation."""
        text = "".join(
            (self.source.newline + indent if line else self.source.newline) + line for line in lines
        )
        return text[len(self.source.newline + indent) :] if lines and lines[0] else text

    def _whole_lines(self, lines: list[str], indent: str) -> str:
        return "".join((indent + line if line else "") + self.source.newline for line in lines)

    def _indent(self, statement: cst.CSTNode) -> str:
        """The indentation that a statement will have, given the blocks that are unwrapped."""
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
        """A block that loses its last statement gets a `pass`."""
        blocks: dict[cst.CSTNode, None] = {}
        for statement, change in self.changes.items():
            if change.gone:
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
            if all(part in self.changes and self.changes[part].gone for part in inside):
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
        """Whole lines, with the blank lines below that would otherwise double those above.

        At the start of a file, or of a block (`begins`), no blank line stays below.
        """
        source = self.source
        first = source.line_start(start)
        below = layout.blank_lines_after(source, end)
        above = self._blank_above(first)
        spare = len(below) if begins or above is None else min(above, len(below))
        return self._edit(first, below[spare - 1] if spare else end, "")

    def _blank_above(self, offset: int) -> int | None:
        """How many blank lines will stand above a line; None at the start of a file or a block."""
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
        """The last line of each statement that goes, and its first."""
        found = {}
        for statement, change in self.changes.items():
            line = statement
            if isinstance(statement, cst.BaseSmallStatement):
                line = layout.line_of(self.source, statement)
                smalls = [self.changes.get(small) for small in line.body]
            else:
                smalls = [change]
            if all(small is not None and small.gone for small in smalls):
                start, end = self.source.span(line)
                last = self.source.position(max(start, end - 1))[0]
                found[last] = self.source.position(start)[0]
        return found

    def _compound(self, statement: cst.CSTNode, change: Change) -> list[Edit]:
        source = self.source
        start = layout.start_of(source, statement)
        indent = self._indent(statement)
        result = []
        lines = change.replaced
        if change.deleted and (change.before or change.after):
            change.before, lines, change.after = [], change.before + change.after, []
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
        """The lines, below those of the comments that they do not hold themselves."""
        text = "\n".join(lines)
        return [comment for comment in comments if comment not in text] + lines

    def _line(self, line: layout.Line) -> list[Edit]:
        source = self.source
        indent = self._indent(line)
        suite = isinstance(line, cst.SimpleStatementSuite)
        smalls = list(line.body)
        spans = [source.span(small) for small in smalls]
        changes = [self.changes.get(small) or Change() for small in smalls]
        if all(change.gone for change in changes):
            if not suite:
                return self._delete_simple(line, changes[0].keep_comments)
            changes[0].deleted, changes[0].replaced = False, ["pass"]
        elif all(change.deleted for change in changes):
            every = [text for change in changes for text in change.before + change.after]
            if not suite and not changes[0].keep_comments:
                at, after = source.line_start(spans[0][0]), layout.line_end(source, spans[-1][1])[1]
                return [self._edit(at, after, self._whole_lines(every, indent))]
            changes[0].before, changes[0].replaced, changes[0].deleted = [], every, False
            for change in changes:
                change.before, change.after = [], []

        alive = [number for number, change in enumerate(changes) if not change.deleted]
        gaps: list[list[str]] = [[] for _ in range(len(alive) + 1)]
        gap = 0
        result = []
        split = False
        for number, change in enumerate(changes):
            if change.replaced is not None and change.keep_comments:
                lost = layout.comments(source, smalls[number])
                change.before += self._remaining_lines(lost, change.replaced)[
                    : -len(change.replaced)
                ]
            gaps[gap].extend(change.before)
            if not change.deleted:
                gap += 1
            gaps[gap].extend(change.after)
            if change.replaced is not None:
                text = self._join_lines(change.replaced, indent)
                result.append(self._edit(*spans[number], text))
                if (suite or len(alive) > 1) and layout.needs_own_line(change.replaced):
                    split = True
        split = split or any(gaps[1:-1]) or (suite and any(gaps))

        def broken(lines: list[str]) -> str:
            text = "".join(source.newline + (indent + x if x else "") for x in lines)
            return text + source.newline + indent

        first, last = alive[0], alive[-1]
        if suite and split:
            colon = source.span(line.leading_whitespace)[0]  # type: ignore[union-attr]
            result.append(self._edit(colon, spans[first][0], broken(gaps[0])))
        else:
            if gaps[0]:
                at = source.line_start(spans[0][0])
                result.append(self._edit(at, at, self._whole_lines(gaps[0], indent)))
            if first:
                result.append(self._edit(spans[0][0], spans[first][0], ""))
        for place, (left, right) in enumerate(pairwise(alive), start=1):
            if split:
                text = broken(gaps[place])
                result.append(self._edit(spans[left][1], spans[right][0], text))
            elif right > left + 1:
                result.append(self._edit(spans[left + 1][0], spans[right][0], ""))
        if last < len(smalls) - 1:
            result.append(self._edit(spans[last][1], spans[-1][1], ""))
        if gaps[-1]:
            self._insert_after(line, gaps[-1], indent)
        return result

    def _delete_simple(self, line: cst.CSTNode, keep_comments: bool) -> list[Edit]:
        source = self.source
        start, end = source.span(line)
        stop, after = layout.line_end(source, end)
        indent = self._indent(line)
        trailing = source.text[end:stop].lstrip(" \t\f;")
        kept = layout.comments(source, line)
        if trailing.startswith("#") and not layout.PRAGMA.match(trailing):
            kept.append(trailing.rstrip())
        if kept and keep_comments:
            return [self._edit(start, stop, self._join_lines(kept, indent))]
        return [self._delete_lines(start, after, begins=self._begins(line))]

    def _begins(self, line: cst.CSTNode) -> bool:
        """Whether nothing of a block stays in front of a line."""
        block = self.source.parent(line)
        if not isinstance(block, cst.IndentedBlock):
            return False
        for item in block.body:
            if item is line:
                return True
            parts = item.body if isinstance(item, cst.SimpleStatementLine) else [item]
            if not all(part in self.changes and self.changes[part].gone for part in parts):
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
