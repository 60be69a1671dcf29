"""What a migration changed that no fact is about."""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsdplint.source.notebooks import is_placeholder
from fsdplint.trace import Location

if TYPE_CHECKING:
    from fsdplint.source.source import Source

# What a migration rewrites in statements that facts judge.
_API = re.compile(
    r"clip_grad|sync|Scaler|state|wrap|summon|\.module\b|optimizer =|device|save|\bload(?!er)"
)
_NUMBER = re.compile(r"(?<![\w.'\"])\d[\d_.]*(?:[eE][-+]?\d+)?(?![\w'\"])")


@dataclass(frozen=True)
class ChangedLines:
    """Lines that differ between two versions of a file; a side without lines has no place.

    in_numbers: whether they differ in nothing but numbers.
    """

    before: Location | None
    after: Location | None
    in_numbers: bool = False


def changed_lines(
    before: Source,
    after: Source,
    compared: Set[Location],
    words: re.Pattern[str],
    own: str | None = None,
) -> Iterator[ChangedLines]:
    """The changed statements that no compared fact judges, without imports and such words.

    A statement with the place of a fact is judged by it, unless the other version lacks it and it
    has no words of the API. own: the text that the own migration makes of the first version; what
    it removes and adds is known to be right.
    """
    sides = _statements(before.text), _statements(after.text)
    counts = [Counter(one.text for one in side) for side in sides]
    matcher = difflib.SequenceMatcher(
        None, [one.text for one in sides[0]], [one.text for one in sides[1]], autojunk=False
    )
    known = _own_changes(counts[0], own)
    marks = _lines_at(before.path, compared), _lines_at(after.path, compared)
    for kind, start, end, other, last in matcher.get_opcodes():
        if kind == "equal":
            continue
        more, fewer = counts[0] - counts[1], counts[1] - counts[0]
        removed = [one for one in sides[0][start:end] if one.is_unknown(marks[0], words, more)]
        added = [one for one in sides[1][other:last] if one.is_unknown(marks[1], words, fewer)]
        removed = [one for one in removed if not _take(known[0], one.text)]
        added = [one for one in added if not _take(known[1], one.text)]
        for one in list(removed):
            two = next((two for two in added if _in_numbers(one, two)), None)
            if two is None:
                continue
            removed.remove(one)
            added.remove(two)
            yield ChangedLines(_place(before.path, [one]), _place(after.path, [two]), True)
        if removed or added:
            yield ChangedLines(_place(before.path, removed), _place(after.path, added))


def _own_changes(before: Counter[str], own: str | None) -> tuple[Counter[str], Counter[str]]:
    """The statements that the own migration removes and adds."""
    after = Counter(one.text for one in _statements(own or ""))
    if not after:
        return Counter(), Counter()
    return before - after, after - before


def _take(known: Counter[str], text: str) -> bool:
    """Whether a statement is left among some; each of them counts once."""
    known[text] -= 1
    return known[text] >= 0


def _in_numbers(one: _Statement, other: _Statement) -> bool:
    """Whether two statements differ in numbers only."""
    texts = [_NUMBER.sub("0", text.text) for text in (one, other)]
    return one.text != other.text and texts[0] == texts[1]


@dataclass(frozen=True)
class _Statement:
    """A statement, or the head of one with a body, without comments and layout."""

    text: str
    line: int
    end_line: int

    def is_unknown(
        self, marks: Set[int], words: re.Pattern[str], missing: Container[str] = ()
    ) -> bool:
        """Whether it has none of some words, and stands on none of some lines or is missing."""
        if words.search(self.text) is not None:
            return False
        lines = range(self.line, self.end_line + 1)
        if marks.isdisjoint(lines):
            return True
        return self.text in missing and _API.search(self.text) is None


def _place(path: str, statements: Sequence[_Statement]) -> Location | None:
    if not statements:
        return None
    return Location(path, statements[0].line, end_line=statements[-1].end_line)


def _lines_at(path: str, places: Set[Location]) -> set[int]:
    return {
        line
        for at in places
        if at.path == path
        for line in range(at.line, max(at.line, at.end_line) + 1)
    }


def _statements(text: str) -> list[_Statement]:
    """The statements of a file in order, without imports, docstrings and lines of IPython."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        statement = _statement(node)
        if not is_placeholder(statement.text):
            found.append(statement)
    return sorted(found, key=lambda one: one.line)


_BODIES = {"body": [ast.Pass()], "orelse": [], "finalbody": [], "handlers": []}


def _statement(node: ast.stmt) -> _Statement:
    body = getattr(node, "body", None)
    if not isinstance(body, list) or not body:
        return _Statement(ast.unparse(node), node.lineno, node.end_lineno or node.lineno)
    head = type(node)(
        **{name: _BODIES.get(name, value) for name, value in ast.iter_fields(node)},
        lineno=node.lineno,
        col_offset=0,
    )
    text = "try" if isinstance(node, ast.Try) else ast.unparse(head)
    return _Statement(text, node.lineno, max(node.lineno, body[0].lineno - 1))
