"""A source file: its text, its libcst tree, and where the nodes of the tree stand in the text.

Parsing and position finding both wait until they are asked for; positions cost several times the
parse (they regenerate the code), so only files with findings pay for them.
"""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property

import libcst as cst
from libcst._nodes.internal import CodegenState

from fsdplint.decoding import decode
from fsdplint.trace import Location

STATEMENTS = (cst.SimpleStatementLine, cst.BaseCompoundStatement)

_FIELDS: dict[type, tuple[str, ...]] = {}
_NODE_TYPES: dict[type, bool] = {}


def is_node(value: object) -> bool:
    """Whether a value is a node; several times faster than isinstance with libcst's base class."""
    kind = type(value)
    known = _NODE_TYPES.get(kind)
    if known is None:
        known = _NODE_TYPES[kind] = issubclass(kind, cst.CSTNode)
    return known


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The direct children of a node in the order of its fields, several times faster than
    libcst's own `children`, which visits the node for it."""
    result: list[cst.CSTNode] = []
    kind = type(node)
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(field.name for field in fields(kind))
    for name in names:
        value = getattr(node, name)
        if is_node(value):
            result.append(value)
        elif type(value) in {tuple, list}:
            result.extend(item for item in value if is_node(item))
    return result


class _Spans(CodegenState):
    """Writes a tree's code, and notes between which characters each node stands.

    libcst's own provider of positions does the same at three times the cost.
    """

    def __init__(self, default_indent: str, default_newline: str) -> None:
        super().__init__(default_indent, default_newline)
        self.spans: dict[cst.CSTNode, tuple[int, int]] = {}
        self._at = 0
        self._starts: list[int] = []

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        self._at += len(value)

    def add_indent_tokens(self) -> None:
        self.tokens.extend(self.indent_tokens)
        self._at += sum(map(len, self.indent_tokens))

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._starts.append(self._at)

    def after_codegen(self, node: cst.CSTNode) -> None:
        self.spans.setdefault(node, (self._starts.pop(), self._at))

    @contextmanager
    def record_syntactic_position(
        self,
        node: cst.CSTNode,
        *,
        start_node: cst.CSTNode | None = None,
        end_node: cst.CSTNode | None = None,
    ) -> Iterator[None]:
        """Within it stands what belongs to the node, without the whitespace around it."""
        start = self._at
        yield
        if start_node is not None:
            start = self.spans[start_node][0]
        end = self._at if end_node is None else self.spans[end_node][1]
        self.spans[node] = start, end


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

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> Source:
        """Decode a file's content.

        Raises:
            SyntaxError: the declared encoding does not exist or contradicts the byte order mark.
            UnicodeDecodeError: the content is not in the encoding that it declares.
        """
        text, encoding, bom = decode(data)
        return cls(path, text, encoding=encoding, bom=bom)

    def renewed(self, text: str) -> Source:
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
        return cst.parse_module(self.text)

    @cached_property
    def newline(self) -> str:
        return self.tree.default_newline

    @cached_property
    def _spans(self) -> dict[cst.CSTNode, tuple[int, int]]:
        state = _Spans(self.tree.default_indent, self.tree.default_newline)
        self.tree._codegen(state)
        offsets = self._offsets("".join(state.tokens))
        if offsets is None:
            return state.spans
        last = len(offsets) - 1  # the module may end behind the last character
        return {
            node: (offsets[min(start, last)], offsets[min(end, last)])
            for node, (start, end) in state.spans.items()
        }

    def _offsets(self, code: str) -> list[int] | None:
        """Where each character of the tree's code stands; None where they are the same.

        The tree's code is the text, except that libcst loses a form feed before a statement and a
        final lone carriage return.
        """
        if code == self.text and code.isascii():
            return None
        result: list[int] = []
        position = 0
        for character in code:
            while self.text[position] != character:
                position += 1
            result.append(position)
            position += 1
        result.append(position)
        return result

    @cached_property
    def _parents(self) -> dict[cst.CSTNode, cst.CSTNode]:
        result: dict[cst.CSTNode, cst.CSTNode] = {}
        stack: list[cst.CSTNode] = [self.tree]
        while stack:
            node = stack.pop()
            for child in children(node):
                result[child] = node
                stack.append(child)
        return result

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        text = self.text
        for number, character in enumerate(text):
            if character == "\n" or (character == "\r" and text[number + 1 : number + 2] != "\n"):
                starts.append(number + 1)
        return starts

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


@dataclass(frozen=True, eq=False)
class NodeSite:
    """A place in a source file: a node of its tree."""

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
