"""An approximate scan of a file's bytes: its statements, and the names that each binds and uses.

The scan decides which files are parsed, so it must be fast, and it may report too many uses but not
too few. It neither decodes nor parses a file, and accepts files that are not Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from fsdplint.discovery.module_resolver import imports
from fsdplint.source.fsdp_words import QUERY_NAMES, mentions, names_api, queries_sharding

_COMMENT_OR_STRING = re.compile(
    rb'"""(?:[^\\]|\\.)*?"""'
    rb"|'''(?:[^\\]|\\.)*?'''"
    rb'|"(?:[^"\\\n]|\\.)*"'
    rb"|'(?:[^'\\\n]|\\.)*'"
    rb"|\#[^\n]*",
    re.DOTALL,
)
_FIELD = re.compile(rb"\{([^{}]*)\}")
_CONTINUED = re.compile(rb"\\\r?\n")
_START = re.compile(rb"^(?=[^\s)\]}])", re.MULTILINE)
_DEFINITION = re.compile(rb"(?:async\s+)?(?:def|class)\s+([\w\x80-\xff]+)")
_COMPOUND = re.compile(
    rb"(?:if|elif|else|try|except|finally|with|for|while|match|case|async\s+(?:with|for))\b"
)
_BODY = re.compile(rb":[ \t]*\r?\n(?:[ \t]*\r?\n)*([ \t]+)(?=\S)")
_BOUND_WITHIN = re.compile(rb"\b(?:as|for)\s+\(?\s*([\w\x80-\xff]+)|([\w\x80-\xff]+)\s*:=")
_ASSIGNED = re.compile(rb"(?<![=!<>])=(?!=)")
_IMPORTS = re.compile(rb"(?:import|from)\b")
MAX_INDENTS = 100  # CPython's own bound
_NAME = re.compile(rb"[^\W\d][\w\x80-\xff]*")
_USED = re.compile(rb"[^\W\d][\w\x80-\xff]*(?:\s*\.\s*[\w\x80-\xff]+)*")
# At the start of a line: what a definition at the top level has.
_DECORATOR = re.compile(rb"^@\s*([\w\x80-\xff]+(?:\s*\.\s*[\w\x80-\xff]+)*)", re.MULTILINE)
_HEAD = re.compile(rb"^(?:async\s+def|def|class)\b", re.MULTILINE)
_BASES = re.compile(rb"^class\s+[\w\x80-\xff]+\s*\(([^)]*)\)", re.MULTILINE)
_KEYWORDS = frozenset(b"assert await del global lambda nonlocal not raise return yield".split())


@dataclass(eq=False)
class Statement:
    """A statement at the top level of a file, or in its `if`, `try`, `with`, ...

    Attributes:
        text: its text, without comments and prose in strings.
        bound: the names that it binds, or whose objects it changes.
        mentions_fsdp: whether its code names FSDP; comments, docstrings and the names of the
            project do not count.
        only_queries: whether it names functions that only test whether a module is sharded.
        imports: whether it is an import.
    """

    text: bytes
    bound: frozenset[str]
    mentions_fsdp: bool
    only_queries: bool = False
    imports: bool = False

    @cached_property
    def used_names(self) -> Set[str]:
        """The dotted names in it, with all their prefixes."""
        return _names_in(self.text)

    def uses(self, names: Set[str]) -> bool:
        """Whether it uses one of some dotted names."""
        return any(
            name.rpartition(".")[2].encode() in self.text for name in names
        ) and not self.used_names.isdisjoint(names)

    @property
    def defines(self) -> bool:
        """Whether it defines a function or class."""
        return self._definition is not None

    @cached_property
    def _definition(self) -> re.Match[bytes] | None:
        """The word with which a definition begins, after its decorators."""
        return (_HEAD.search if self.text.startswith(b"@") else _HEAD.match)(self.text)

    @property
    def is_class(self) -> bool:
        """Whether it defines a class."""
        return self._definition is not None and self._definition.group() == b"class"

    @cached_property
    def receivers(self) -> Set[str]:
        """The dotted names that get what it defines: those of decorators and base classes, and the
        function or object of a call or an assignment such as `register(Trainer)`."""
        if not self.defines:
            found = [match.group() for match in (_USED.match(self.text),) if match is not None]
        else:
            bases = _BASES.search(self.text) if self.is_class else None
            found = _DECORATOR.findall(self.text) if self.text.startswith(b"@") else []
            found += _USED.findall(bases.group(1)) if bases is not None else []
        return {b"".join(name.split()).decode("utf-8", "replace") for name in found}

    @cached_property
    def inner_names(self) -> Set[str]:
        """The dotted names that it uses besides its receivers, with all their prefixes."""
        text = _DECORATOR.sub(b"", self.text)
        bases = _BASES.search(text)
        if bases is not None:
            text = text[: bases.start(1)] + text[bases.end(1) :]
        elif not self.defines:
            text = _USED.sub(b"", text, count=1)
        return _names_in(text)


def _names_in(text: bytes) -> Set[str]:
    """The dotted names in a text, with all their prefixes."""
    used = {b"".join(name.split()).decode("utf-8", "replace") for name in set(_USED.findall(text))}
    for chain in [name for name in used if "." in name]:
        end = chain.find(".")
        while end >= 0:
            used.add(chain[:end])
            end = chain.find(".", end + 1)
    return used


def statements(data: bytes) -> list[Statement]:
    """The statements of a file."""
    text = _COMMENT_OR_STRING.sub(_replacement, data)
    if b"\\" in text:
        text = _CONTINUED.sub(b" ", text)
    return [_statement(one) for one in _split(text)]


def reachable_statements(
    pending: Sequence[Statement],
    names: set[str],
    uses: Callable[[Statement], bool],
    binds: Callable[[Statement], Set[str]],
) -> tuple[list[Statement], list[Statement]]:
    """The statements that names lead to, directly or through other statements, and the rest.

    Args:
        pending: the statements.
        names: the names; those that the reached statements bind are added.
        uses: whether a statement uses one of `names`.
        binds: the names that a reached statement adds.
    """
    found: list[Statement] = []
    rest = pending
    while True:
        used: list[Statement] = []
        unused: list[Statement] = []
        for one in rest:
            (used if uses(one) else unused).append(one)
        found, rest = [*found, *used], unused
        added = set().union(*map(binds, used)) - names
        names |= added
        if not added:
            return found, unused


def _replacement(match: re.Match[bytes]) -> bytes:
    """The replacement of a comment or string: nothing for a comment; the fields in braces of a
    string with spaces, which may be values; other strings without brackets and `#=:`."""
    text = match.group()
    if text.startswith(b"#"):
        return b""
    if text.startswith((b'"""', b"'''")):
        return b'""'
    if b" " in text:
        return b'" %s "' % b" ".join(_FIELD.findall(text)).translate(None, b"()[]{}#=:\"'")
    return text.translate(None, b"()[]{}#=:")


def _split(text: bytes, depth: int = 0) -> Iterator[bytes]:
    """The simple statements, definitions, and heads of the other compound statements.

    depth: the number of compound statements around the text.
    """
    whole = b""
    for piece in _START.split(text):
        whole += piece
        if piece.startswith(b"@") or _is_open(whole):
            if len(whole) < 100_000:
                continue
        yield from _parts(whole, depth)
        whole = b""
    yield from _parts(whole, depth)


def _is_open(text: bytes) -> bool:
    return any(
        text.count(opening) > text.count(closing)
        for opening, closing in ((b"(", b")"), (b"[", b"]"), (b"{", b"}"))
    )


def _parts(text: bytes, depth: int) -> Iterator[bytes]:
    if not text.strip():
        return
    is_split = depth < MAX_INDENTS and _COMPOUND.match(text) is not None
    body = _BODY.search(text) if is_split else None
    if body is None:
        yield text
        return
    yield text[: body.start() + 1]
    inner = text[body.start(1) :]
    yield from _split(re.sub(rb"^" + body.group(1), b"", inner, flags=re.MULTILINE), depth + 1)


def _statement(text: bytes) -> Statement:
    bound = frozenset(name.decode("utf-8", "replace") for name in _bound(text))
    is_import = _IMPORTS.match(text) is not None
    if is_import:
        bound = frozenset(name for one in imports(text) for name in one.binds())
    mentions_fsdp = queried = False
    if mentions(text):
        mentions_fsdp, queried = names_api(text), queries_sharding(text)
        if is_import:
            bound -= QUERY_NAMES
            mentions_fsdp, queried = mentions_fsdp and bool(bound), mentions_fsdp or queried
    return Statement(text, bound, mentions_fsdp, queried, is_import)


def _bound(text: bytes) -> Iterator[bytes]:
    definition = _DEFINITION.search(text) if text.startswith((b"@", b"async")) else None
    definition = definition or _DEFINITION.match(text)
    if definition is not None:
        yield definition.group(1)
        return
    if _COMPOUND.match(text):
        for match in _BOUND_WITHIN.finditer(text):
            yield match.group(1) or match.group(2)
        return
    *targets, _ = _ASSIGNED.split(text.partition(b"(")[0])
    for target in targets:
        for part in target.partition(b":")[0].split(b","):
            name = _NAME.search(part)
            if name is not None:
                yield name.group()
    # `registry.register(...)` and `table[key(x)] = ...` change the object of the name.
    first = _NAME.match(text)
    if first is not None and text[first.end() : first.end() + 1] in (b".", b"["):
        if first.group() not in _KEYWORDS:
            yield first.group()
