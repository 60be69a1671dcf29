"""A settings file: its text, and the spans of its keys and values.

ruamel.yaml reads both YAML and JSON. No library writes the text, so that comments, quotes, order
and line ends stay the same.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from fsdplint.source.source import Source
from fsdplint.trace import FixedSite, Location

if TYPE_CHECKING:
    from typing_extensions import Self

_NULL = {"", "~", "null", "Null", "NULL"}
# The booleans of YAML 1.1, as PyYAML reads them.
_TRUE = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}
_FALSE = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}
_COLON = re.compile(r"[ \t]*:")
_SEVERAL = "expected a single document in the stream"  # the error of ruamel for several documents
_TOO_DEEP = "nested too deeply to be read"
_MAX_BRACKETS = 400  # that are open; a little less than the parser can take
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*")


class ConfigError(Exception):
    """A text is not a settings file that can be read, or its layout cannot be edited."""


class ConfigSyntaxError(ConfigError):
    """A text is not YAML or JSON.

    Attributes:
        line: the line of the error, if known.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Node:
    """A piece of the text: the characters start..end."""

    start: int
    end: int


@dataclass(frozen=True)
class Scalar(Node):
    """A single value with its quotes; `text` is the content of the quotes."""

    text: str
    quote: str = ""
    anchored: bool = False

    @property
    def value(self) -> object:
        """The value as PyYAML reads it; numbers with a point stay text."""
        if self.quote:
            return self.text
        if self.text in _NULL:
            return None
        if self.text in _TRUE or self.text in _FALSE:
            return self.text in _TRUE
        return int(self.text) if _INTEGER.fullmatch(self.text) else self.text


@dataclass(frozen=True)
class Sequence(Node):
    """A list of values. `flow`: in brackets."""

    items: tuple[Node, ...]
    flow: bool


@dataclass(frozen=True)
class Entry:
    """A key and its value."""

    key: Scalar
    value: Node

    @property
    def end(self) -> int:
        return last(self.value) or self.key.end


@dataclass(frozen=True)
class Mapping(Node):
    """Keys and values. `flow`: in braces, as always in JSON."""

    entries: tuple[Entry, ...]
    flow: bool

    def get(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key.text == key), None)

    def values(self) -> dict[str, object]:
        """The scalar values by their keys; `...` for other values."""
        return {entry.key.text: _plain_value(entry.value) for entry in self.entries}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)


def _plain_value(node: Node) -> object:
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [_plain_value(item) for item in node.items]
    return ...


def last(node: Node) -> int:
    """The end of the text of a node; the end of a block node is on a later line."""
    if isinstance(node, Mapping) and not node.flow and node.entries:
        return node.entries[-1].end
    if isinstance(node, Sequence) and not node.flow and node.items:
        return last(node.items[-1])
    return node.end


class ConfigSource(Source):
    """A settings file. It has no Python syntax tree."""

    @classmethod
    def from_data(cls, path: str, data: bytes) -> Self:
        """The file. Raises UnicodeDecodeError if it is not UTF-8."""
        bom = data.startswith(codecs.BOM_UTF8)
        return cls(path, data[3 if bom else 0 :].decode("utf-8"), bom=bom)

    def with_text(self, text: str) -> ConfigSource:
        return ConfigSource(self.path, text, encoding=self.encoding, bom=self.bom)

    def validate(self) -> None:
        _ = self.top

    @cached_property
    def newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    @property
    def is_json(self) -> bool:
        return self.path.lower().endswith(".json")

    @property
    def mapping(self) -> Mapping | None:
        """The mapping of the whole file, or None if it cannot be read."""
        try:
            return self.top
        except ConfigError:
            return None

    def at(self, node: Node | Entry) -> FixedSite:
        """The place of a value, or of a key with its value if both are on one line."""
        start = node.key.start if isinstance(node, Entry) else node.start
        end = node.end
        if "\n" in self.text[start:end]:
            end = node.key.end if isinstance(node, Entry) else start + 1
        line, column = self.position(start)
        end_line, end_column = self.position(end)
        return FixedSite(Location(self.path, line, column, end_line, end_column))

    def parse(self) -> None:
        """Raises ConfigSyntaxError if the text is not YAML or JSON.

        Valid text whose layout cannot be edited is accepted.
        """
        try:
            _ = self.top
        except ConfigSyntaxError:
            raise
        except ConfigError:
            return

    @cached_property
    def top(self) -> Mapping:
        """The mapping of the whole file. Raises ConfigError if the file holds something else."""
        node = _Reader(self.text, is_json=self.is_json).read()
        if not isinstance(node, Mapping):
            raise ConfigError("the file does not hold a mapping")
        return node


@cache
def _bounded_scanner() -> type[Any]:
    """A scanner of ruamel that ends where too many brackets are open.

    The time that it takes for a bracket grows with the number of open ones.
    """
    from ruamel.yaml.scanner import Scanner

    class BoundedScanner(Scanner):
        def fetch_flow_collection_start(self, *args: Any, **kwargs: Any) -> None:
            if self.flow_level >= _MAX_BRACKETS:
                raise RecursionError
            super().fetch_flow_collection_start(*args, **kwargs)

    return BoundedScanner


class _Reader:
    """Converts a text to nodes."""

    def __init__(self, text: str, *, is_json: bool) -> None:
        self.text = text
        self.is_json = is_json
        self.seen: set[int] = set()

    def read(self) -> Node:
        from ruamel.yaml import YAML

        yaml = YAML(typ="safe", pure=True)
        yaml.Scanner = _bounded_scanner()
        text = self.text
        if self.is_json:
            try:
                json.loads(text)
            except RecursionError:
                raise ConfigSyntaxError(_TOO_DEEP) from None
            except ValueError as error:
                line = getattr(error, "lineno", None)
                raise ConfigSyntaxError(f"not JSON: {error}", line) from None
            text = text.replace("\t", " ")  # only between values: strings of JSON have none
        try:
            root = yaml.compose(text)
        except RecursionError:
            raise ConfigSyntaxError(_TOO_DEEP) from None
        except Exception as error:  # the parser may raise any exception for invalid text
            if getattr(error, "context", None) == _SEVERAL:
                raise ConfigError("the file holds several documents") from None
            mark = getattr(error, "problem_mark", None)
            line = None if mark is None else mark.line + 1
            reason = getattr(error, "problem", None) or type(error).__name__
            raise ConfigSyntaxError(f"not YAML: {reason}", line) from None
        if root is None:
            raise ConfigError("the file is empty")
        try:
            return self._node(root)
        except RecursionError:
            raise ConfigSyntaxError(_TOO_DEEP) from None

    def _node(self, node: Any) -> Node:
        if id(node) in self.seen:
            raise ConfigError("a value is an alias of another")
        self.seen.add(id(node))
        start, end = node.start_mark.index, node.end_mark.index
        if node.id == "scalar":
            quote = node.style if node.style in ("'", '"') else ""
            if node.style in ("|", ">"):
                end = start + len(self.text[start:end].rstrip())
            return Scalar(start, end, node.value, quote, node.anchor is not None)
        if node.id == "sequence":
            items = tuple(self._node(item) for item in node.value)
            return Sequence(start, end, items, bool(node.flow_style))
        entries = []
        for key, value in node.value:
            name = self._node(key)
            if not isinstance(name, Scalar) or name.text == "<<":
                raise ConfigError("a key is not a plain name")
            content = self._node(value)
            if isinstance(content, Scalar) and not content.text and not content.quote:
                # The value is empty; the parser gives the position of the next token.
                colon = _COLON.match(self.text, name.end)
                if colon is None:
                    raise ConfigError(f"`{name.text}` has no value")
                content = Scalar(colon.end(), colon.end(), "", "", content.anchored)
            entries.append(Entry(name, content))
        if len({entry.key.text for entry in entries}) < len(entries):
            raise ConfigError("a mapping has the same key twice")
        return Mapping(start, end, tuple(entries), bool(node.flow_style))
