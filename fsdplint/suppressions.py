"""Comments that turn findings off.

    x = f()  # noqa                            every finding that starts on this line
    x = f()  # noqa: FSDP101, FSDP3            these codes, and codes that start so
    x = f()  # fsdplint: ignore[FSDP101]       the same, and not read by other linters
    # fsdplint: file-ignore[FSDP101]           in the whole file

A comment counts on the finding's first and last line and on the last line of its statement, so that
it can stand behind the closing bracket of a call that runs over several lines.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field

_QUICK = re.compile(r"#.*(?:noqa|fsdplint)", re.IGNORECASE)
_NOQA = re.compile(
    r"#\s*noqa(?:(?P<colon>\s*:)\s*(?P<codes>[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)?)?(?![\w-])",
    re.IGNORECASE,
)
_OWN = re.compile(
    r"#\s*fsdplint:\s*(?P<kind>file-ignore|ignore)(?:\[(?P<codes>[^\]]*)\])?(?![\w-])"
)


@dataclass
class Suppressions:
    """The comments of one file.

    Attributes:
        whole_file: codes, beginnings of codes or names that are off everywhere; "" is all.
        lines: the same for single lines.
        selectors: every code or name for this tool as written, with the line of its comment.
        last_line: the last line of the statement that each line of a longer one belongs to.
    """

    whole_file: set[str] = field(default_factory=set)
    lines: dict[int, set[str]] = field(default_factory=dict)
    last_line: dict[int, int] = field(default_factory=dict)
    selectors: list[tuple[int, str]] = field(default_factory=list)

    def covers(self, code: str, name: str, line: int, end_line: int = 0) -> bool:
        """Whether a finding of the rule that spans these lines is off."""
        if _fits(self.whole_file, code, name):
            return True
        places = {line, end_line or line, self.last_line.get(line, line)}
        return any(_fits(self.lines.get(place, ()), code, name) for place in places)


def _fits(selectors: Iterable[str], code: str, name: str) -> bool:
    return any(code.startswith(one.upper()) or one.lower() == name for one in selectors)


def read_suppressions(text: str) -> Suppressions:
    """The comments of a file's text that turn findings off. Never raises."""
    result = Suppressions()
    if not _QUICK.search(text):
        return result
    start = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT:
                _read_comment(result, token.string, token.start[0])
            elif token.type == tokenize.NEWLINE:
                for line in range(start, token.start[0]) if start else ():
                    result.last_line[line] = token.start[0]
                start = 0
            elif not start and token.type not in _BLANK:
                start = token.start[0]
    except (tokenize.TokenError, SyntaxError):
        pass  # syntax that this Python does not know; what was read until there holds
    return result


def read_line_comments(text: str) -> Suppressions:
    """The same of a file in which a `#` behind white space begins a comment, as in YAML."""
    result = Suppressions()
    if not _QUICK.search(text):
        return result
    for number, line in enumerate(text.split("\n"), 1):
        match = _LINE_COMMENT.search(line)
        if match:
            _read_comment(result, match.group(), number)
    return result


_LINE_COMMENT = re.compile(r"(?:(?<=\s)|^)#.*")
_BLANK = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def _read_comment(result: Suppressions, comment: str, line: int) -> None:
    for match in _OWN.finditer(comment):
        codes = match.group("codes")
        written = [part for part in re.split(r"[,\s]+", codes or "") if part]
        result.selectors.extend((line, part) for part in written)
        every = codes is None or "ALL" in (part.upper() for part in written)
        selectors = {""} if every else set(written)
        if match.group("kind") == "file-ignore":
            result.whole_file |= selectors
        else:
            result.lines.setdefault(line, set()).update(selectors)
    for match in _NOQA.finditer(comment):
        codes = match.group("codes")
        if codes:
            written = re.split(r"[,\s]+", codes)
            result.lines.setdefault(line, set()).update(written)
            own = (part for part in written if part.upper().startswith("FSDP"))
            result.selectors.extend((line, part) for part in own)
        elif not match.group("colon"):
            result.lines.setdefault(line, set()).add("")
