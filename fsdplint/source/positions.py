"""The positions of the nodes of a tree in its code, and the parent of each node.

Both are computed for each statement of a module separately, so that they can be reused for a
statement that does not change in the next text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from operator import attrgetter
from typing import Any

from fsdplint.source.quick_libcst import CodegenState, cst

_Values = Callable[[cst.CSTNode], tuple[Any, ...]]
_FIELDS: dict[type, _Values] = {}
_CODE_FIELDS: dict[type, _Values] = {}
_NODE_TYPES: dict[type, bool] = {}
_TEXTS = (str, bool, str | None)
_LAYOUT_FIELD = re.compile(
    r"(leading_|trailing_)?whitespace\w*|leading_lines|lines_after_decorators|empty_lines|header|footer"
    r"|[lr](par|brace|bracket)|(trailing_)?comma|semicolon|equal|dot|((first|second)_)?colon"
)


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
    values = _FIELDS.get(type(node))
    if values is None:
        names = [field.name for field in fields(type(node)) if field.type not in _TEXTS]
        values = _FIELDS[type(node)] = _values(names)
    return _nodes(values(node))


def code_children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The same without layout: whitespace, brackets, commas and the like."""
    values = _CODE_FIELDS.get(type(node))
    if values is None:
        names = [field.name for field in fields(type(node)) if field.type not in _TEXTS]
        names = [name for name in names if not _LAYOUT_FIELD.fullmatch(name)]
        values = _CODE_FIELDS[type(node)] = _values(names)
    return _nodes(values(node))


def _values(names: Sequence[str]) -> _Values:
    """What gives the values of some fields of a node."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda node: tuple([getattr(node, name) for name in names])


def _nodes(values: tuple[Any, ...]) -> list[cst.CSTNode]:
    """Those of the values of a node's fields that are nodes, or sequences of them."""
    result: list[cst.CSTNode] = []
    known = _NODE_TYPES.get
    for value in values:
        kind: type = type(value)
        if known(kind):
            result.append(value)
        elif kind is list or kind is tuple:
            result += value
        elif kind not in _NODE_TYPES and is_node(value):
            result.append(value)
    return result


def descend(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and all below it, in no particular order."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(children(current))


class _Spans(CodegenState):
    """Generates the code of a tree, and records the span of each node.

    The position provider of libcst does the same at three times the cost.
    """

    def __init__(self, default_indent: str, default_newline: str) -> None:
        super().__init__(default_indent, default_newline)
        self.spans: dict[cst.CSTNode, tuple[int, int]] = {}
        self.at = 0
        self._starts: list[int] = []

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        self.at += len(value)

    def add_indent_tokens(self) -> None:
        self.tokens.extend(self.indent_tokens)
        self.at += sum(map(len, self.indent_tokens))

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._starts.append(self.at)

    def after_codegen(self, node: cst.CSTNode) -> None:
        self.spans.setdefault(node, (self._starts.pop(), self.at))

    def record_syntactic_position(  # type: ignore[override]  # twice as fast as a generator
        self,
        node: cst.CSTNode,
        *,
        start_node: cst.CSTNode | None = None,
        end_node: cst.CSTNode | None = None,
    ) -> _Within:
        """A context in which the code of the node is written, without whitespace around it."""
        return _Within(self, node, start_node, end_node)


class _Within:
    """See `_Spans.record_syntactic_position`."""

    __slots__ = ("_end", "_node", "_start", "_starts_with", "_state")

    def __init__(
        self,
        state: _Spans,
        node: cst.CSTNode,
        start_node: cst.CSTNode | None,
        end_node: cst.CSTNode | None,
    ) -> None:
        self._state, self._node = state, node
        self._starts_with, self._end = start_node, end_node
        self._start = state.at

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        state = self._state
        spans = state.spans
        start = self._start if self._starts_with is None else spans[self._starts_with][0]
        spans[self._node] = start, state.at if self._end is None else spans[self._end][1]


class Part:
    """A statement of a module, or the header or footer of the module.

    Attributes:
        nodes: its top-level nodes: the statement.
        code: their code.
        last: its last token.
        spans: the span in `code` of each node.
    """

    def __init__(self, nodes: Sequence[cst.CSTNode], indent: str, newline: str) -> None:
        self.nodes = nodes
        self._config = indent, newline
        self.walks: dict[bool, tuple[cst.CSTNode, ...]] = {}  # see `qualified_names.walk`

    def release(self) -> None:
        """Forget the spans and the parents. They are computed again if they are asked for."""
        self.__dict__.pop("_state", None)
        self.__dict__.pop("_collect", None)

    @cached_property
    def _state(self) -> _Spans:
        state = _Spans(*self._config)
        for node in self.nodes:
            node._codegen(state)
        return state

    @cached_property
    def code(self) -> str:
        return "".join(self._state.tokens)

    @property
    def last(self) -> str:
        tokens = self._state.tokens
        return tokens[-1] if tokens else ""

    @property
    def spans(self) -> dict[cst.CSTNode, tuple[int, int]]:
        return self._state.spans

    @cached_property
    def begin(self) -> int:
        """The character at which the statement itself begins, behind comments and empty lines."""
        lines = getattr(self.nodes[0], "leading_lines", ())
        return sum(len(Part([line], *self._config).code) for line in lines)

    @property
    def parents(self) -> dict[cst.CSTNode, cst.CSTNode]:
        return self._collect[1]

    @property
    def order(self) -> list[cst.CSTNode]:
        """All of its nodes: parents before children, later siblings before earlier ones."""
        return self._collect[0]

    @cached_property
    def _collect(self) -> tuple[list[cst.CSTNode], dict[cst.CSTNode, cst.CSTNode]]:
        order: list[cst.CSTNode] = []
        parents: dict[cst.CSTNode, cst.CSTNode] = {}
        stack = list(self.nodes)
        while stack:
            node = stack.pop()
            order.append(node)
            below = children(node)
            for child in below:
                parents[child] = node
            stack += below
        return order, parents
