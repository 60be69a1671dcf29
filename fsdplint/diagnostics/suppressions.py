"""Comments that turn findings off.

    x = f()  # noqa                            every finding that starts on this line
    x = f()  # noqa: FSDP101, FSDP3            these codes, and codes that start so
    x = f()  # fsdplint: ignore[FSDP101]       the same; other linters do not read it
    # fsdplint: ignore[FSDP101]                in a line of its own: in the statement below
    # fsdplint: disable[FSDP101]               from here to the `enable` with the same rules, or to
    # fsdplint: enable[FSDP101]                the end of the block
    # fsdplint: file-ignore[FSDP101]           in the whole file

A comment behind code applies if it is on the first or last line of the finding, or on the last line
of its statement. It can follow the closing bracket of a call that spans several lines.
"""

from __future__ import annotations

import difflib
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field

_QUICK = re.compile(r"#.*(?:noqa|fsdplint)", re.IGNORECASE)
_NOQA = re.compile(
    r"#[ \t]*noqa(?:(?P<colon>[ \t]*:)[ \t]*(?P<codes>[A-Z]+[0-9]+(?:[, \t]+[A-Z]+[0-9]+)*)?)?"
    r"(?![\w-])",
    re.IGNORECASE,
)
_OWN = re.compile(
    r"#\s*fsdplint:\s*(?P<kind>file-ignore|ignore|disable|enable)"
    r"(?:[ \t]*\[(?P<codes>[^\]]*)\])?(?![\w-]|[ \t]*\[)"
)
# A comment for this tool. The comments of `--annotate` are for people (fsdplint.edits.annotations).
_ADDRESSED = re.compile(
    r"#\s*fsdplint:(?!\s*FSDP\d+ blocks the migration:)(?P<words>[^#]*)", re.IGNORECASE
)
_KINDS = ("ignore", "disable", "enable", "file-ignore")
_SEPARATOR = re.compile(r"[,\s]+")
EVERY = ""  # the selector of a comment that names no rules
LAST = 10**9  # a line behind the end of every file


@dataclass(frozen=True)
class Directive:
    """One comment that turns findings off, or on again.

    Attributes:
        kind: "noqa", or the word after `fsdplint:`.
        line: the line of the comment.
        start: offset of its `#` in the text of the file.
        end: offset of the next comment of the line, or of the end of the line.
        words: offset of the rest of the comment, a reason for people.
        codes: offsets of the rules that it names; None if it names none.
        selectors: codes, prefixes of codes and names, as written; `EVERY` if it names none.
    """

    kind: str
    line: int
    start: int
    end: int
    words: int
    codes: tuple[int, int] | None
    selectors: tuple[str, ...]


@dataclass
class _Span:
    """The lines in which a selector is off. whole: also for statements that end in one of them."""

    directive: Directive
    selector: str
    first: int
    last: int
    whole: bool = False

    def fits(self, code: str, name: str) -> bool:
        one = self.selector
        return code.startswith(one.upper()) or one.lower() == name


@dataclass
class Suppressions:
    """The comments of one file.

    Attributes:
        directives: all of them, in order.
        last_line: for the lines of statements over several lines, the statement's last line.
        unmatched: selectors of `enable` that end nothing, each with its directive.
        unknown: comments for this tool that are no directives: the line, and the reason.
    """

    directives: list[Directive] = field(default_factory=list)
    last_line: dict[int, int] = field(default_factory=dict)
    unmatched: list[tuple[Directive, str]] = field(default_factory=list)
    spans: list[_Span] = field(default_factory=list)
    unknown: list[tuple[int, str]] = field(default_factory=list)

    def covers(self, code: str, name: str, line: int, end_line: int = 0) -> bool:
        """Whether a finding of a rule in these lines is turned off."""
        return any(True for _ in self.covering(code, name, line, end_line))

    def covering(
        self, code: str, name: str, line: int, end_line: int = 0
    ) -> Iterator[tuple[Directive, str]]:
        """The comments that turn a finding off, each with its selector."""
        places = (line, end_line or line, self.last_line.get(line, line))
        for span in self.spans:
            lines = places if span.whole else (line,)
            if any(span.first <= place <= span.last for place in lines) and span.fits(code, name):
                yield span.directive, span.selector

    @property
    def selectors(self) -> list[tuple[int, str]]:
        """Every code or name for this tool, as written, with the line of its comment."""
        return [
            (one.line, selector)
            for one in self.directives
            for selector in one.selectors
            if selector != EVERY and is_own(one, selector)
        ]


def is_own(directive: Directive, selector: str) -> bool:
    """Whether a selector is for this tool and not for another linter."""
    return directive.kind != "noqa" or (selector != EVERY and _is_own_code(selector))


def _is_own_code(written: str) -> bool:
    """Whether a code in a `noqa` is a rule of this tool."""
    from fsdplint.diagnostics.codes import known_rules

    code = written.upper()
    return code.startswith("FSDP") or code in known_rules()


def is_addressed(text: str) -> bool:
    """Whether a file's text may hold a comment for this tool; a string may look like one.

    Most suppression comments are for other linters and matter only on lines with findings. Reading
    all comments of a file takes as long as parsing it.
    """
    return _ADDRESSED.search(text) is not None or any(
        _is_own_code(one)
        for match in _NOQA.finditer(text)
        for one in _SEPARATOR.split(match.group("codes") or "")
        if one
    )


def has_blanket(text: str) -> bool:
    """Whether a file's text may hold a `noqa` without codes."""
    return any(not match.group("colon") for match in _NOQA.finditer(text))


def read_suppressions(text: str) -> Suppressions:
    """The comments of a file's text that turn findings off. Never raises."""
    if not _QUICK.search(text):
        return Suppressions()
    reader = _Reader(text)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            reader.take(token)
    except (tokenize.TokenError, SyntaxError):
        pass  # syntax that this Python does not know; the comments before it apply
    return reader.finish()


def read_line_comments(text: str) -> Suppressions:
    """The same for a file in which `#` after white space begins a comment, as in YAML."""
    if not _QUICK.search(text):
        return Suppressions()
    reader = _Reader(text)
    for number, line in enumerate(text.split("\n"), 1):
        match = _LINE_COMMENT.search(line)
        if match:
            reader.comment(match.group(), number, match.start())
        if line.strip() and not line.lstrip().startswith("#"):
            reader.statement(number, number)
    return reader.finish()


_LINE_COMMENT = re.compile(r"(?:(?<=\s)|^)#.*")
_BLANK = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


class _Reader:
    """Reads a file and finds the lines that its comments apply to."""

    def __init__(self, text: str) -> None:
        self.result = Suppressions()
        self.text = text
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.waiting: list[_Span] = []  # apply to the next statement
        self.inside: list[_Span] = []  # apply to the next line of the current statement
        self.open: list[tuple[_Span, int]] = []  # `disable`, with the indentation of its line
        self.first = 0  # line of the statement that is being read

    def take(self, token: tokenize.TokenInfo) -> None:
        line, column = token.start
        if token.type == tokenize.COMMENT:
            self.comment(token.string, line, column)
        elif token.type == tokenize.NEWLINE:
            if self.first:
                self.statement(self.first, line)
            self.first = 0
        elif token.type not in _BLANK:
            if not self.first:
                self.first = line
                self._close_blocks(line, column)
            _place(self.inside, line, line)

    def comment(self, comment: str, line: int, column: int) -> None:
        """Take the directives out of a comment."""
        start = self.starts[line - 1]
        before = self.text[start : start + column]
        for directive in _directives(comment, line, start + column):
            self.result.directives.append(directive)
            for selector in directive.selectors:
                self._apply(directive, selector, before)
        self.result.unknown += ((line, why) for why in _unknown_reasons(comment))

    def _apply(self, directive: Directive, selector: str, before: str) -> None:
        """Find the lines that a directive applies to. before: the text before its comment."""
        kind, line = directive.kind, directive.line
        if kind == "enable":
            self._end(directive, selector)
            return
        span = _Span(directive, selector, line, line)
        if kind == "file-ignore":
            span.first, span.last = 0, LAST
        elif kind == "disable":
            span.last = LAST
            self.open.append((span, len(before) - len(before.lstrip())))
        elif kind == "ignore" and not before.strip():
            span.first = span.last = 0
            (self.inside if self.first else self.waiting).append(span)
        else:
            span.whole = True
        self.result.spans.append(span)

    def _end(self, directive: Directive, selector: str) -> None:
        ended = [
            pair
            for pair in self.open
            if selector == EVERY or pair[0].selector.upper() == selector.upper()
        ]
        for pair in ended:
            pair[0].last = directive.line
            self.open.remove(pair)
        if not ended:
            self.result.unmatched.append((directive, selector))

    def _close_blocks(self, line: int, column: int) -> None:
        """A dedented statement ends each `disable` of the block above."""
        for pair in list(self.open):
            if column < pair[1]:
                pair[0].last = line - 1
                self.open.remove(pair)

    def statement(self, first: int, last: int) -> None:
        """Handle a statement, or the header of a block, in these lines."""
        for line in range(first, last):
            self.result.last_line[line] = last
        _place(self.waiting, first, last)

    def finish(self) -> Suppressions:
        return self.result  # spans that still wait keep line 0, which no finding has


def _place(spans: list[_Span], first: int, last: int) -> None:
    for span in spans:
        span.first, span.last = first, last
    spans.clear()


def _directives(comment: str, line: int, offset: int) -> list[Directive]:
    found = sorted(
        [*_OWN.finditer(comment), *_NOQA.finditer(comment)], key=lambda match: match.start()
    )
    result = []
    for match in found:
        end = comment.find("#", match.end())
        end = len(comment.rstrip()) if end < 0 else end
        own = match.re is _OWN
        codes = match.group("codes")
        if codes is None:
            if not own and match.group("colon"):
                continue  # it names no rules
            selectors: tuple[str, ...] = (EVERY,)
        else:
            written = [part for part in _SEPARATOR.split(codes) if part]
            every = own and "ALL" in (part.upper() for part in written)
            selectors = (EVERY,) if every else tuple(dict.fromkeys(written))
        kind = match.group("kind") if own else "noqa"
        where = None
        if codes is not None:
            where = (offset + match.start("codes"), offset + match.end("codes"))
        start, words = offset + match.start(), offset + match.end()
        result.append(Directive(kind, line, start, offset + end, words, where, selectors))
    return result


def _unknown_reasons(comment: str) -> Iterator[str]:
    """The reasons why comments for this tool are no directives."""
    for match in _ADDRESSED.finditer(comment):
        if _OWN.match(comment, match.start()):
            continue
        words = match.group("words").strip()
        word = re.split(r"[^\w-]", words)[0]
        close = difflib.get_close_matches(word.lower(), _KINDS, n=1, cutoff=0.6)
        if word in _KINDS and "[" in words:
            hint = "a `]` is missing"
        elif word in _KINDS:
            hint = f"it is written `# fsdplint: {word}`"
        elif close:
            hint = f"did you mean {close[0]}?"
        else:
            hint = "known are ignore, disable, enable and file-ignore"
        yield f"unknown comment {match.group().strip()!r}; {hint}"
