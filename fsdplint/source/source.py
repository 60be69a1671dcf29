"""A source file: its text, its libcst tree, and the positions of the nodes in the text.

The tree and the positions are computed on demand. Positions cost several times the parse, since
they regenerate the code, so only files with findings pay for them.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

from fsdplint.source.decoding import decode
from fsdplint.source.incremental import reparse
from fsdplint.source.positions import Part, children, descend, is_node
from fsdplint.source.quick_libcst import cst
from fsdplint.trace import Location

__all__ = ["STATEMENTS", "NodeSite", "Source", "children", "is_node", "once"]

MAX_RENEWALS = 50  # texts of a file that reuse the tree of the text before
_LINE_END = re.compile(r"\n|\r(?!\n)")
T = TypeVar("T")
STATEMENTS = (cst.SimpleStatementLine, cst.BaseCompoundStatement)


class Source:
    """One Python file.

    Attributes:
        path: as it is shown to the user.
        text: its characters, newlines as they are in the file, without a byte order mark.
        encoding: the one that the file declares ("utf-8" where it declares none).
        bom: whether the file starts with a byte order mark (kept when it is written).
    """

    def __init__(self, path: str, text: str, *, encoding: str = "utf-8", bom: bool = False) -> None:
        self.path = path
        self.text = text
        self.encoding = encoding
        self.bom = bom
        self.typed_in = False  # whether the next text is likely to be similar, and takes the parts
        self.earlier: Source | None = None  # the text before this one
        self.walks: dict[bool, tuple[cst.CSTNode, ...]] = {}  # see `qualified_names.walk`
        self.results: dict[Callable[[Source], Any], Any] = {}  # see `once`
        self._renewals = 0
        self._known: Mapping[cst.CSTNode, Part] = {}

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> Source:
        """Decode a file's content.

        Raises:
            SyntaxError: the declared encoding does not exist or contradicts the byte order mark.
            UnicodeDecodeError: the content is not in the encoding that it declares.
        """
        text, encoding, bom = decode(data)
        return cls(path, text, encoding=encoding, bom=bom)

    def with_text(self, text: str) -> Source:
        """The same file with another text."""
        return Source(self.path, text, encoding=self.encoding, bom=self.bom)

    def validate(self) -> None:
        """Parse the text. Raises libcst.ParserSyntaxError."""
        _ = self.tree

    def to_bytes(self, text: str) -> bytes:
        """Encode a new text of this file the way the file is encoded."""
        return (codecs.BOM_UTF8 if self.bom else b"") + text.encode(self.encoding)

    @cached_property
    def tree(self) -> cst.Module:
        """The syntax tree. Raises libcst.ParserSyntaxError."""
        earlier, self.earlier = self.earlier, None
        if earlier is not None and earlier._renewals < MAX_RENEWALS:
            tree = reparse(earlier.tree, earlier.parts, earlier.text, self.text)
            if tree is not None:
                self._renewals = earlier._renewals + 1
                self._known = {part.nodes[0]: part for part in earlier.parts if part.nodes}
                return tree
        return cst.parse_module(self.text)

    @cached_property
    def parts(self) -> list[Part]:
        """The header, each statement of the module, and the footer."""
        tree, known = self.tree, self._known
        self._known = {}
        config = tree.default_indent, tree.default_newline
        return [
            Part(tree.header, *config),
            *(known.get(one) or Part([one], *config) for one in tree.body),
            Part(tree.footer, *config),
        ]

    @cached_property
    def newline(self) -> str:
        return self.tree.default_newline

    @cached_property
    def _spans(self) -> dict[cst.CSTNode, tuple[int, int]]:
        spans: dict[cst.CSTNode, tuple[int, int]] = {}
        at, last = 0, ""
        for part in self.parts:
            if at:
                spans.update((node, (at + a, at + b)) for node, (a, b) in part.spans.items())
            else:
                spans.update(part.spans)
            at += len(part.code)
            last = part.last or last
            self._release(part)
        code = "".join(part.code for part in self.parts)
        if not self.tree.has_trailing_newline:
            code = code.removesuffix(last)
        elif not code:
            code = self.newline
            at = len(code)
        spans[self.tree] = 0, at
        offsets = self._offsets(code)
        if offsets is None:
            return spans
        final = len(offsets) - 1  # the module may end behind the last character
        return {
            node: (offsets[min(start, final)], offsets[min(end, final)])
            for node, (start, end) in spans.items()
        }

    def _offsets(self, code: str) -> list[int] | None:
        """Where each character of the tree's code stands; None where they are the same.

        The tree's code is the text, except that libcst loses a form feed before a statement and a
        final lone carriage return, and repeats a form feed in the indentation of a block.
        """
        if code == self.text:
            return None
        result: list[int] = []
        position = 0
        for character in code:
            if character == "\f" and not self.text.startswith("\f", position):
                result.append(position)
                continue
            while self.text[position] != character:
                position += 1
            result.append(position)
            position += 1
        result.append(position)
        return result

    @cached_property
    def _parents(self) -> dict[cst.CSTNode, cst.CSTNode]:
        result: dict[cst.CSTNode, cst.CSTNode] = {}
        for part in self.parts:
            result.update(dict.fromkeys(part.nodes, self.tree))
            result.update(part.parents)
            self._release(part)
        return result

    def _release(self, part: Part) -> None:
        """Release what a part has computed, which this source holds from now on."""
        if not self.typed_in:
            part.release()

    @cached_property
    def _order(self) -> list[cst.CSTNode]:
        """All nodes, as `descend` gives those of the tree."""
        header, *statements, footer = self.parts
        result: list[cst.CSTNode] = [self.tree]
        for part in (footer, header, *reversed(statements)):
            result += part.order
            self._release(part)
        return result

    @cached_property
    def _extents(self) -> dict[cst.CSTNode, tuple[int, int]]:
        """The span in `_order` of each node with its descendants."""
        order, parents = self._order, self._parents
        at = {node: number for number, node in enumerate(order)}
        ends = list(range(1, len(order) + 1))
        for number in range(len(order) - 1, 0, -1):
            parent = at[parents[order[number]]]
            if ends[parent] < ends[number]:
                ends[parent] = ends[number]
        return dict(zip(order, enumerate(ends), strict=True))

    def descend(self, node: cst.CSTNode) -> Sequence[cst.CSTNode]:
        """A node and its descendants, as `positions.descend` but several times faster.

        Parents come before their children, and later siblings before earlier ones.
        """
        extent = self._extents.get(node)
        return list(descend(node)) if extent is None else self._order[slice(*extent)]

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """The characters of a node (offsets into the text), whitespace around it not included."""
        return self._spans[node]

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node as its author wrote it."""
        start, end = self.span(node)
        return self.text[start:end]

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._parents.get(node)

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """The innermost statement (a line or a compound statement) that holds the node."""
        current: cst.CSTNode | None = node
        while current is not None and not isinstance(current, STATEMENTS):
            current = self._parents.get(current)
        return current if current is not None else self.tree

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, of a character offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_start(self, offset: int) -> int:
        """Offset of the start of the line that holds `offset`."""
        return self._line_starts[bisect_right(self._line_starts, offset) - 1]

    def line(self, number: int) -> str:
        """The text of a line (from 1), without its newline."""
        starts = self._line_starts
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def indent(self, node: cst.CSTNode) -> str:
        """The whitespace before the statement that holds the node."""
        start, _ = self.span(self.statement(node))
        line = self.text[self.line_start(start) : start]
        return line[: len(line) - len(line.lstrip())]

    def location(self, node: cst.CSTNode) -> Location:
        start, end = self.span(node)
        line, column = self.position(start)
        end_line, end_column = self.position(end)
        return Location(self.path, line, column, end_line, end_column)


def once(function: Callable[[Source], T]) -> Callable[[Source], T]:
    """Decorator: cache the result of a function of a source in the source."""

    @wraps(function)
    def of(source: Source) -> T:
        if function not in source.results:
            source.results[function] = function(source)
        result: T = source.results[function]
        return result

    return of


@dataclass(eq=False, slots=True)
class NodeSite:
    """A place in a source file: a node of its tree. Not to be changed.

    It is not `frozen`: a run makes one for each call, and that would take twice the time.
    """

    source: Source
    node: cst.CSTNode

    @property
    def path(self) -> str:
        return self.source.path

    def location(self) -> Location:
        return self.source.location(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeSite) and self.node is other.node

    def __hash__(self) -> int:
        return id(self.node)
