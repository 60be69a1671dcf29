"""The changes of a migration: the new texts of nodes, and of the statements around them.

A migration changes small nodes first (`ShardingStrategy.FULL_SHARD` becomes `"FULL_SHARD"`), then the
statements around them. The new text of a statement contains the new texts of its parts: `text(node)`
returns a node's text with all changes made inside it so far.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.migration.facts import Blocks
from fsdplint.migration.text import call, in_string, width
from fsdplint.source.source import Source
from fsdplint.syntax.layout import comments_at, line_end, line_indent
from fsdplint.syntax.qualified_names import walk

Span = tuple[int, int]


@dataclass(kw_only=True)
class Changes:
    """The changes of some files.

    Attributes:
        rewrite: the changes of whole statements.
        blocks: the blocks whose bodies take their places.
    """

    rewrite: Rewrite = field(default_factory=Rewrite)
    blocks: Blocks = field(default_factory=Blocks)
    _texts: dict[Source, dict[Span, str]] = field(default_factory=dict)
    _owned_spans: dict[Source, list[Span]] = field(default_factory=dict)
    _lines_without_comments: dict[Source, set[int]] = field(default_factory=dict)

    def substitute(self, source: Source, node: cst.CSTNode, text: str) -> None:
        """Give a node a new text, which replaces all earlier changes inside it."""
        start, end = source.span(node)
        self.substitute_span(source, start, end, text)

    def substitute_span(self, source: Source, start: int, end: int, text: str) -> None:
        texts = self._texts.setdefault(source, {})
        for span in [s for s in texts if start <= s[0] and s[1] <= end]:
            del texts[span]
        texts[start, end] = text

    def text(self, source: Source, node: cst.CSTNode) -> str:
        """The node's text with the changes made so far."""
        start, end = source.span(node)
        result = []
        position = start
        for (left, right), text in sorted(self._texts.get(source, {}).items()):
            if start <= left and right <= end:
                result.append(source.text[position:left])
                result.append(text)
                position = right
        result.append(source.text[position:end])
        return "".join(result)

    def unwrap(self, source: Source, block: cst.With, lines: list[str]) -> None:
        """Put a block's body in its place. Add the block to `blocks.unwrapped` before reading its parts."""
        self.own(source, block.items[0])
        self.rewrite.unwrap(source, block, lines)

    def indent(self, source: Source, node: cst.CSTNode) -> str:
        """The indentation that a node's line will have."""
        indent = line_indent(source, source.span(node)[0])
        parent = source.parent(node)
        while parent is not None:
            if parent in self.blocks.unwrapped:
                indent = indent.removesuffix(source.tree.default_indent)
            parent = source.parent(parent)
        return indent

    def indent_at(self, source: Source, node: cst.CSTNode, text: str) -> str:
        """A text indented for a node's place; tabs indent its lines after the first."""
        indent, unit = self.indent(source, node), source.tree.default_indent
        first, *rest = text.split("\n")
        lines = [first]
        for line in rest:
            bare = line.lstrip("\t")
            lines.append(indent + unit * (len(line) - len(bare)) + bare if bare else "")
        return "\n".join(lines)

    def put_call(
        self, source: Source, node: cst.CSTNode, head: str, given: list[str], tail: str = ""
    ) -> None:
        """Put a call in place of a node, broken up if its line gets too long."""
        start, end = source.span(node)
        before = source.text[source.line_start(start) : start].lstrip()
        after = source.text[end : line_end(source, end)[0]]
        if not re.fullmatch(r"[\s)\]},:.\w()]*", after):
            after = ""  # a comment or another item may exceed the line limit, as before
        room = width(source) - len(self.indent(source, node).expandtabs(4))
        if "\n" in before or len(before + head) >= room:
            before = ""
        if in_string(source, node):
            self.substitute(source, node, f"{head}({', '.join(given)}){tail}")
            return
        text = call(source, self.indent(source, node), before + head, given, tail + after)
        text = text.removeprefix(before).removesuffix(after)
        self.substitute(source, node, self.indent_at(source, node, text))

    def is_changed(self, source: Source, node: cst.CSTNode) -> bool:
        """Whether the text of a node, or of a statement around it, changes."""
        start, end = source.span(node)
        spans = [*self._owned_spans.get(source, ()), *self._texts.get(source, ())]
        return any(left < end and start < right for left, right in spans)

    def own(self, source: Source, node: cst.CSTNode) -> None:
        """Record that a change to its statement rewrites or deletes the node's whole text."""
        self.own_span(source, *source.span(node))

    def own_span(self, source: Source, start: int, end: int) -> None:
        """The same for the characters start..end."""
        self._owned_spans.setdefault(source, []).append((start, end))

    def owner(self, source: Source, start: int, end: int) -> Span | None:
        """Code around the characters start..end whose whole text a change replaces."""
        for left, right in self._owned_spans.get(source, ()):
            if left <= start and end <= right and (left, right) != (start, end):
                return left, right
        return None

    def finish(self) -> None:
        """Pass the changes of single nodes to the rewrite."""
        for source, texts in self._texts.items():
            owned = self._owned_spans.get(source, [])
            for (start, end), text in texts.items():
                if not any(left <= start and end <= right for left, right in owned):
                    self.rewrite.replace_span(source, start, end, text)
                    self._keep_comments(source, start, end, text)

    def forget_comments(self, source: Source, lines: Iterable[int]) -> None:
        """Let the comments in lines of removed code go with it."""
        self._lines_without_comments.setdefault(source, set()).update(lines)

    def _keep_comments(self, source: Source, start: int, end: int, text: str) -> None:
        """Put the comments of replaced code that the new text lacks above its statement."""
        if not text.strip() or "#" not in source.text[start:end]:
            return
        removed = self._lines_without_comments.get(source, ())
        lost = [
            comment
            for at, comment in comments_at(source, source.tree)
            if start <= at < end and comment not in text and source.position(at)[0] not in removed
        ]
        around = [
            node
            for node in walk(source, skip_imports=True)
            if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement)
            and source.span(node)[0] <= start < source.span(node)[1]
        ]
        if lost and around:
            inner = max(around, key=lambda node: source.span(node)[0])
            self.rewrite.insert_before(source, inner, lost)
