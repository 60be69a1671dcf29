"""The comments of a settings file that are about one key.

They become wrong when the key is dropped, or when its values get other names.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from fsdplint.source.config_source import ConfigSource, Entry

_TRAILING = re.compile(r"[ \t]+(#[^\r\n]*)")
_COMMENT_LINE = re.compile(r"([ \t]*)#[^\r\n]*")
_LONG_WORD = re.compile(r"[a-z]{5,}")


def trailing_comment(source: ConfigSource, entry: Entry) -> tuple[int, int] | None:
    """The span of the comment behind an entry, with the lines that go on in its column."""
    found = _TRAILING.match(source.text, entry.end)
    if found is None:
        return None
    start, end = found.span()
    column = found.start(1) - source.line_start(found.start(1))
    while (line := _comment_line(source, end)) is not None and len(line.group(1)) == column:
        end = line.end()
    return start, end


def comment_above(source: ConfigSource, entry: Entry) -> int:
    """The offset at which the comment lines directly above an entry begin, or its own line."""
    start = source.line_start(entry.key.start)
    indent = source.text[start : entry.key.start]
    while start > 0:
        before = source.line_start(start - 1)
        line = _COMMENT_LINE.match(source.text, before)
        if line is None or line.group(1) != indent:
            break
        start = before
    return start


def is_about(text: str, entry: Entry, following: str) -> bool:
    """Whether a comment above an entry is about this entry alone, so that it goes with the entry.

    The comment may be the heading of several entries. It goes only if it has a word of the key that
    the following line does not have, or if no entry follows. A comment that is left costs less than
    a heading that is lost.

    Args:
        text: the comment.
        entry: the entry below it.
        following: the line after the entry.
    """
    following = following.strip()
    if not following or following.startswith("#"):
        return True
    words = set(_LONG_WORD.findall(text.lower()))
    own = set(_LONG_WORD.findall(entry.key.text.lower()))
    return bool(words & (own - set(_LONG_WORD.findall(following.lower()))))


def names_one_of(text: str, names: Collection[str]) -> bool:
    """Whether a comment contains one of some names, in any case."""
    return any(re.search(rf"(?<!\w){re.escape(one)}(?!\w)", text, re.I) for one in names)


def _comment_line(source: ConfigSource, end: int) -> re.Match[str] | None:
    """The next line after an offset at the end of a line, if it is a comment."""
    newline = source.text.find("\n", end)
    if newline < 0 or source.text[end:newline].strip():
        return None
    return _COMMENT_LINE.match(source.text, newline + 1)
