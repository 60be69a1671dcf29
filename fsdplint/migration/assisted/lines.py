"""The lines that stand in the place of code that a person has to decide about."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import libcst as cst

from fsdplint.edits.quotes import quote_of
from fsdplint.migration.assisted.places import Form, Place
from fsdplint.migration.blockers import Blocked, advice
from fsdplint.migration.blockers.program import API_USE, DEPENDS
from fsdplint.migration.text import width
from fsdplint.source.source import Source
from fsdplint.syntax.layout import NEWLINE, line_indent

PREFIX = "fsdplint: "  # of the message that is raised
DECIDE = "To decide ("  # begins a comment on a reason
CODE_BELOW = "The code for FSDP1:"  # the comment above the old lines
SMALLEST = 40  # characters of a line of text, however deep it stands

# Decorators that decide how a method is reached.
KEPT_DECORATORS = ("property", "cached_property", "staticmethod", "classmethod")
_GENERAL = {API_USE.code: 1, DEPENDS.code: 2}
_STATEMENTS = ("FSDP2's ", "If ", "No ", "This ", "With ")  # begin a sentence that asks for nothing
_AGAIN = re.compile(r"[;,] then run this again\.?$")


def lines_for(place: Place) -> list[str]:
    """The lines for a place, without its indentation; tabs stand for levels of indentation."""
    source = place.source
    indent = line_indent(source, place.span[0]).expandtabs(4)
    room = max(SMALLEST, width(source) - len(indent))
    lines = [*_comments(place, room), *_old_lines(place)]
    message = _message(place)
    if place.form is Form.NOTHING:
        return lines
    if place.form is Form.RAISE:
        return [*lines, *_raise(source, message, room, "")]
    unit = len(source.tree.default_indent.expandtabs(4))
    head, depth = _head(place)
    body = _raise(source, message, max(SMALLEST, room - unit * depth), "\t" * depth)
    return [*lines, *head, *body]


def sentence(blocked: Blocked) -> str:
    """What a person has to decide, in one sentence."""
    first = re.split(r"(?<=[.!?]) (?=[A-Z`])", " ".join(blocked.advice.split()))[0]
    if first.startswith(_STATEMENTS) or blocked.advice == advice.BY_HAND:
        first = " ".join(blocked.reason.split())
    return _AGAIN.sub("", first).rstrip(".")


def main_reason(place: Place) -> Blocked:
    """The reason that says most about a place."""
    return min(place.reasons, key=lambda one: _GENERAL.get(one.code, 0))


def _message(place: Place) -> str:
    reason = main_reason(place)
    return f"{PREFIX}{sentence(reason)} ({reason.code})"


def _comments(place: Place, room: int) -> Iterator[str]:
    """What has to be decided, and why."""
    own = [one for one in place.reasons if one.code != DEPENDS.code] or place.reasons
    reasons = sorted(own, key=lambda one: _GENERAL.get(one.code, 0))
    for text in dict.fromkeys(_explanation(one) for one in reasons):
        encoding = place.source.encoding
        words = text.encode(encoding, "backslashreplace").decode(encoding)
        for line in textwrap.wrap(words, room - 2, break_long_words=False, break_on_hyphens=False):
            yield f"# {line}"


def _explanation(blocked: Blocked) -> str:
    reason = " ".join(blocked.reason.split())
    words = " ".join(blocked.advice.split())
    return f"{DECIDE}{blocked.code}): {reason}. {_AGAIN.sub('.', words)}"


def _old_lines(place: Place) -> Iterator[str]:
    yield f"# {CODE_BELOW}"
    start, end = place.span
    indent = line_indent(place.source, start)
    for number, line in enumerate(NEWLINE.split(place.source.text[start:end])):
        text = line.removeprefix(indent) if number else line
        yield f"#     {text}".rstrip()


def _head(place: Place) -> tuple[list[str], int]:
    """The head of a function or class of the same name, and the depth of its body."""
    statement = place.statement
    if isinstance(statement, cst.ClassDef):
        init = "\tdef __init__(self, *args, **kwargs):"
        return [f"class {statement.name.value}:", init], 2
    assert isinstance(statement, cst.FunctionDef)
    decorators = [
        f"@{place.source.code(one.decorator)}"
        for one in statement.decorators
        if place.source.code(one.decorator).rpartition(".")[2] in KEPT_DECORATORS
    ]
    word = "async def" if statement.asynchronous is not None else "def"
    return [*decorators, f"{word} {statement.name.value}(*args, **kwargs):"], 1


def _raise(source: Source, message: str, room: int, tabs: str) -> list[str]:
    """The `raise`, whose message is split over several lines if it is too long."""
    encoding = source.encoding
    message = message.encode(encoding, "backslashreplace").decode(encoding)
    one = f"raise NotImplementedError({_literal(source, message)})"
    if len(one) <= room:
        return [tabs + one]
    unit = len(source.tree.default_indent.expandtabs(4))
    inside = max(SMALLEST, room - unit) - 4
    parts = textwrap.wrap(message, inside, break_long_words=False, break_on_hyphens=False)
    texts = [*(f"{part} " for part in parts[:-1]), parts[-1]]
    return [
        f"{tabs}raise NotImplementedError(",
        *(f"{tabs}\t{_literal(source, text)}" for text in texts),
        f"{tabs})",
    ]


def _literal(source: Source, text: str) -> str:
    """A string of the file's style, with the other quotes where that saves escapes."""
    quote = quote_of(source)
    other = '"' if quote == "'" else "'"
    if quote in text and other not in text:
        quote = other
    return quote + text.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote
