"""String literals in the style of a file."""

from __future__ import annotations

import re

from fsdplint.source.source import Source, once


def string_literal(source: Source, word: str) -> str:
    """A string literal of a word, with the quotes that the file prefers."""
    return quote_of(source) + word + quote_of(source)


@once
def quote_of(source: Source) -> str:
    single = len(re.findall(r"(?<!')'(?!')\w", source.text))
    double = len(re.findall(r'(?<!")"(?!")\w', source.text))
    return "'" if single > double else '"'
