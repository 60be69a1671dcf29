"""Tests whether a known text has the form that a known pattern describes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import Const, LibraryObject, Value

LONGEST = 200  # characters of a text or a pattern
MOST_REPEATS = 4  # of one pattern: the work of a match grows with the length to this power

_REPEATED_GROUP = re.compile(r"\)[*+{?]")
_BACKSLASHED = re.compile(r"\\.")
_FULL: dict[str, Callable[[re.Pattern[str], str], re.Match[str] | None]] = {
    "match": re.Pattern.match,
    "search": re.Pattern.search,
    "fullmatch": re.Pattern.fullmatch,
}


@function("fnmatch.fnmatch", "fnmatch.fnmatchcase")
def by_wildcards(run: Run, name: str, call: Call) -> Value:
    text, pattern = _text(call.arg(0, "name")), _text(call.arg(1, "pat"))
    if text is None or pattern is None or pattern.count("*") > MOST_REPEATS:
        return unknown_result(call)
    return Const(fnmatch.fnmatchcase(text, pattern))


@function("re.match", "re.search", "re.fullmatch")
def by_expression(run: Run, name: str, call: Call) -> Value:
    if len(call.args) + len(call.kwargs) > 2:  # with flags
        return unknown_result(call)
    return _match_object(name, call, call.arg(0, "pattern"), call.arg(1, "string"))


@function("re.compile")
def compile_expression(run: Run, name: str, call: Call) -> Value:
    pattern = call.arg(0, "pattern")
    if len(call.args) + len(call.kwargs) != 1 or _text(pattern) is None or pattern is None:
        return unknown_result(call)
    return LibraryObject("re.Pattern", {"pattern": pattern})


@method("LibraryObject", "match", "search", "fullmatch")
def by_compiled(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    if receiver.name != "re.Pattern" or len(call.args) + len(call.kwargs) > 1:
        return unknown_result(call)
    return _match_object(name, call, receiver.get("pattern"), call.arg(0, "string"))


def _match_object(name: str, call: Call, pattern: Value | None, string: Value | None) -> Value:
    """A match object, `None` if the text does not match, or what is unknown."""
    expression, text = _text(pattern), _text(string)
    if expression is None or text is None or not _is_cheap(expression):
        return unknown_result(call)
    try:
        found = _FULL[name.rpartition(".")[2]](re.compile(expression), text)
    except (re.error, RecursionError, OverflowError):
        return unknown_result(call)
    return Const(None) if found is None else LibraryObject("re.Match")


def _text(value: Value | None) -> str | None:
    found = value.value if isinstance(value, Const) else None
    return found if isinstance(found, str) and len(found) <= LONGEST else None


def _is_cheap(expression: str) -> bool:
    """Whether the work of a match is small for every short text."""
    plain = _BACKSLASHED.sub("x", expression)
    repeats = sum(plain.count(sign) for sign in "*+{")
    return repeats <= MOST_REPEATS and not _REPEATED_GROUP.search(plain)
