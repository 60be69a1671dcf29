"""Add comments `# noqa: CODE` for the findings in a file."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding
    from fsdplint.source.source import Source

_NOQA = re.compile(r"#\s*noqa\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)", re.IGNORECASE)


def with_comments(source: Source, found: Sequence[Finding]) -> tuple[str, int, list[str]]:
    """The text of a file with comments that turn its findings off.

    Returns:
        The text, the number of lines that got a comment, and messages about lines that cannot.
    """
    if source.path.endswith(".json"):
        lines = [f"{source.path}:{one.site.location().line}" for one in found]
        return source.text, 0, [f"{line}: JSON has no comments" for line in lines]
    ends = _ends(source.text) if not source.path.endswith((".yaml", ".yml")) else {}
    codes_by_line: dict[int, list[str]] = {}
    for one in found:
        at = one.site.location()
        line = ends.get(at.line, at.line)
        codes = codes_by_line.setdefault(line, [])
        if one.rule.code not in codes:
            codes.append(one.rule.code)
    lines = re.split(r"(?<=\n)", source.text)
    for number, codes in codes_by_line.items():
        lines[number - 1] = _with_codes(lines[number - 1], sorted(codes))
    return "".join(lines), len(codes_by_line), []


def _with_codes(line: str, codes: Sequence[str]) -> str:
    text = line.rstrip("\r\n")
    newline = line[len(text) :]
    text = text.rstrip()
    match = _NOQA.search(text)
    if match is None:
        return f"{text}  # noqa: {', '.join(codes)}{newline}"
    present = [code for code in re.split(r"[,\s]+", match.group("codes")) if code]
    merged = ", ".join([*present, *(code for code in codes if code not in present)])
    start, end = match.span("codes")
    return f"{text[:start]}{merged}{text[end:]}{newline}"


def _ends(text: str) -> dict[int, int]:
    """For each line that cannot end in a comment, the last line of its statement."""
    result: dict[int, int] = {}
    inside: set[int] = set()  # lines that end inside a string
    first = 0
    lines = text.split("\n")
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            line, last = token.start[0], token.end[0]
            if token.type == tokenize.NEWLINE:
                for number in range(first or line, line):
                    continued = lines[number - 1].rstrip("\r").endswith("\\")
                    if number in inside or continued:
                        result[number] = line
                first = 0
            elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT):
                first = first or line
                inside.update(range(line, last))
    except (tokenize.TokenError, SyntaxError):
        pass  # syntax that this Python does not support
    return result
