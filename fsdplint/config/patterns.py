"""Patterns as in .gitignore, matched in time bounded by the lengths of the pattern and the path.

pathspec converts each pattern to a regular expression. For several stars in one name of a path, or
several `**` in one pattern, Python's matcher tries every way to divide the characters among them.
That is unnecessary: the first match of the text between two stars serves as well as any other.
`linear` rewrites the expression so that the matcher does not give up such a match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

# The tokens of pathspec's expressions.
_TOKEN = re.compile(
    r"""
    (?P<folders> \(\?:\.\+/\)\? | \(\?:/\.\+\)\? )
    | (?P<star> (?:\[\^/\][*+])+ )
    | (?P<end> / | \^ | \$ | \(\?P<\w+>/\) | \(\?: | \| | \)\?? | \.\*? )
    | (?P<character> \[\^?\]?(?:\\.|[^\]\\])*\] | \\. | [^()\[\]{}*+?|^$.\\] )
    """,
    re.VERBOSE | re.DOTALL,
)


def compile_patterns(lines: Iterable[str]) -> GitIgnoreSpec:
    """The patterns in lines as in .gitignore.

    Raises:
        re.error, ValueError: a line is not a pattern.
    """
    from pathspec import GitIgnoreSpec
    from pathspec.pattern import RegexPattern

    patterns: list[Any] = []
    found: Iterable[Any] = GitIgnoreSpec.from_lines(lines).patterns
    for pattern in found:
        regex = getattr(pattern, "regex", None)
        if pattern.include is not None and regex is not None:
            expression = linear(regex.pattern)
            if expression != regex.pattern:
                pattern = RegexPattern(re.compile(expression), pattern.include)
        patterns.append(pattern)
    return GitIgnoreSpec(patterns)


@lru_cache(maxsize=1024)
def pattern_error(pattern: str) -> str | None:
    """The error in a pattern as in .gitignore, if any."""
    try:
        compile_patterns([pattern])
    except re.error as error:
        return error.msg
    except (ValueError, OverflowError, RecursionError) as error:
        return str(error)
    return None


def linear(expression: str) -> str:
    """An expression that matches the same paths as an expression of pathspec, in bounded time.

    An expression of unknown form is returned unchanged.
    """
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None or match.lastgroup is None:
            return expression
        text = match.group()
        if text.startswith("[^") and match.lastgroup == "character":
            text = "[^/" + text[2:]  # as in git: no character set matches the slash
        tokens.append((match.lastgroup, text))
        at = match.end()
    return _folders(_names(tokens))


def _names(tokens: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The tokens; of several stars in a name, all but the last keep their first match."""
    result: list[tuple[str, str]] = []
    star: str | None = None  # the last star of this name, and the tokens after it
    rest = ""
    number = 0
    for kind, text in tokens:
        if kind == "character" and star is not None:
            rest += text
        elif kind == "star":
            text = "[^/]+" if "+" in text else "[^/]*"
            if star is not None:
                result.append(("end", _keep_match(f"{star}?{rest}", f"s{number}")))
                number += 1
            star, rest = text, ""
        else:
            if star is not None:
                result.append(("end", star + rest))
                star = None
            result.append((kind, text))
    if star is not None:
        result.append(("end", star + rest))
    return result


def _folders(tokens: list[tuple[str, str]]) -> str:
    """The expression; of several `**`, all but the last keep their first match."""
    places = [n for n, (kind, _) in enumerate(tokens) if kind == "folders"]
    texts = [text for _, text in tokens]
    if not places:
        return "".join(texts)
    parts = texts[: places[0]]
    for number, (start, end) in enumerate(zip(places, [*places[1:], len(texts)], strict=True)):
        folders, rest = texts[start], "".join(texts[start + 1 : end])
        if end == len(texts):
            parts += [folders, rest]
        else:  # a slash follows, because whole names are compared
            lazy = folders.replace(".+", ".+?") + "?"
            parts.append(_keep_match(f"{lazy}{rest}(?=/)", f"f{number}"))
    return "".join(parts)


def _keep_match(expression: str, name: str) -> str:
    """An expression that keeps its first match, by means of a look-ahead."""
    return f"(?=(?P<{name}>{expression}))(?P={name})"
