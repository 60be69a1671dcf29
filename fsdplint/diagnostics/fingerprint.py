"""Fingerprints of findings: rule, file, scope and the text of the line, without its number.

Two findings may have the same fingerprint (the same line twice in one function).
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsdplint.source.source import Source

_SCOPE = re.compile(r"([ \t]*)(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)")
_COMMENT = re.compile(r"(?:^|\s)#.*")


def fingerprint(code: str, path: str, source: Source | None, line: int) -> str:
    """The fingerprint of a finding.

    Args:
        code: the code of its rule.
        path: the path of its file; comparable fingerprints name a file in the same way.
        source: the file; None if it cannot be read.
        line: its first line.
    """
    parts = [code, path]
    if source is not None:
        text = source.line(line)
        parts += [*_scopes(source, line, text), " ".join(_COMMENT.sub("", text).split())]
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _scopes(source: Source, line: int, text: str) -> list[str]:
    """The names of the functions and classes around a line, the innermost first."""
    names = []
    indent = _indent(text)
    while line > 1 and indent:
        line -= 1
        match = _SCOPE.match(source.line(line))
        if match and _indent(match.group(1)) < indent:
            indent = _indent(match.group(1))
            names.append(match.group(2))
    return names


def _indent(text: str) -> int:
    text = text.expandtabs()
    return len(text) - len(text.lstrip())
