"""What has to hold of any Python file that fsdplint gets: the oracle of the fuzzer and of the
property tests.

The file is checked and fixed as the command line does it. Nothing may be raised; what comes of a
fix has to compile, to need no second fix, to have all comments of the file, and to be the file's
own bytes but for the edits that the fixes speak of.
"""

from __future__ import annotations

import ast
import json
import os
import re
import tokenize
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from fsdplint.config.command_line import CommandLine
from fsdplint.diagnostics.finding import Edit, Fix
from fsdplint.edits import apply as edits
from fsdplint.engine.changes import Changes
from fsdplint.engine.operations import check_files, fix_files
from fsdplint.engine.session import Session
from fsdplint.source.debug import VARIABLE
from fsdplint.source.decoding import decode
from fsdplint.source.source import Source

# How a file is given to the tool.
UNSAFE, SAFE, NOTEBOOK, MIXED = "unsafe", "safe", "notebook", "mixed"
MODES = (UNSAFE, SAFE, NOTEBOOK, MIXED)
FORMATS = ("full", "sarif", "json", "rdjson", "gitlab", "junit")

# Comments that turn findings off (unused ones are taken away) or speak to tools about their line.
_FOR_TOOLS = re.compile(
    r"#.*(noqa|fsdplint:)|#\s*(type|pyright|mypy|pylint|pragma|fmt|isort|yapf|ruff|nosec)\b",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"^[ \t]*(def|class|async|if|elif|else|for|while|with|try|except|match)\b", re.MULTILINE
)
_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True)
class Broken:
    """A promise that was not kept.

    Attributes:
        kind: which; `place` says where as well, so that the same defect is known again.
    """

    kind: str
    place: str
    details: str

    @property
    def signature(self) -> str:
        return f"{self.kind} at {self.place}" if self.place else self.kind


@dataclass
class _Round:
    """One round of fixing, as it was seen."""

    sources: Mapping[str, Source]
    fixes: Sequence[Fix]
    applied: edits.Applied


@dataclass
class Keeper:
    """Looks whether the promises are kept, in a folder of its own."""

    folder: Path
    path: Path = field(init=False)

    def __post_init__(self) -> None:
        os.environ[VARIABLE] = "1"
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "pyproject.toml").touch()

    def broken(self, data: bytes, mode: str = UNSAFE) -> Broken | None:
        """The first promise that is not kept for a file with this content."""
        if mode == NOTEBOOK:
            data = as_notebook(data)
        self.path = self.folder / ("program.ipynb" if mode == NOTEBOOK else "program.py")
        try:
            self.path.write_bytes(data)
            return self._first(data, mode)
        except Exception as error:
            return Broken("crash", _place(error), "".join(traceback.format_exception(error)))
        finally:
            self.path.unlink()

    def _first(self, data: bytes, mode: str) -> Broken | None:
        command_line = CommandLine(unsafe_fixes=mode != SAFE)
        if mode == MIXED:
            result = check_files(Session([self.path], command_line))
            _render(result)
        with _observed() as rounds:
            changes = fix_files(Session([self.path], command_line))
        if mode == MIXED:
            _render(changes.result)
        found = _in_rounds(rounds)
        if found is not None or not changes.contents:
            return found
        ((_, (before, after)),) = changes.contents.items()
        codes = " ".join(sorted({one.rule.code for one in changes.applied}))
        if before != data:
            return Broken("not the file's bytes", codes, _diff(data, before))
        if mode == NOTEBOOK:
            json.loads(after)
        elif _compiles(before) and not _compiles(after):
            return Broken("no Python any more", codes, _diff(before, after))
        return self._again(changes, before, after, codes, command_line)

    def _again(
        self, changes: Changes, before: bytes, after: bytes, codes: str, command_line: CommandLine
    ) -> Broken | None:
        """Whether a second fix finds nothing to do."""
        self.path.write_bytes(after)
        second = fix_files(Session([self.path], command_line))
        if second.contents:
            ((_, (_, third)),) = second.contents.items()
            more = " ".join(sorted({one.rule.code for one in second.applied}))
            text = _diff(before, after) + "\n=== the second time:\n" + _diff(after, third)
            return Broken("not done at once", f"{codes} then {more}", text)
        return None


def as_notebook(data: bytes) -> bytes:
    """The content of a notebook with a file's code, in cells that end at blank lines."""
    try:
        text = decode(data)[0]
    except (SyntaxError, UnicodeDecodeError):
        text = data.decode("latin-1")
    cells = re.split(r"(?<=\n)\n+(?=\S)", text.replace("\r\n", "\n"))
    made = [
        {"cell_type": "code", "metadata": {}, "source": cell.splitlines(keepends=True)}
        for cell in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode(
        "utf-8", "surrogatepass"
    )


@contextmanager
def _observed() -> Iterator[list[_Round]]:
    """What is given to and comes of `edits.apply`."""
    rounds: list[_Round] = []
    original = edits.apply

    def apply(sources: Mapping[str, Source], fixes: Sequence[Fix]) -> edits.Applied:
        applied = original(sources, fixes)
        rounds.append(_Round(dict(sources), fixes, applied))
        return applied

    edits.apply = apply
    try:
        yield rounds
    finally:
        edits.apply = original


def _in_rounds(rounds: Sequence[_Round]) -> Broken | None:
    for one in rounds:
        if one.applied.broken:
            fix, why = one.applied.broken[0]
            shown = re.sub(r"/\S*/|\d+", "", why)
            return Broken("a fix that cannot be applied", f"{fix.title}: {shown[:80]}", why)
        for path, text in one.applied.texts.items():
            source = one.sources[path]
            if isinstance(source, Source):
                found = _untouched(source, one.applied.applied, text) or _comments(
                    source.text, text, one.applied.applied, path
                )
                if found is not None:
                    return found
    return None


def _untouched(source: Source, fixes: Sequence[Fix], after: str) -> Broken | None:
    """Whether a text is the old one with the edits of some fixes, but for its imports."""
    own = {edit for fix in fixes for edit in fix.edits if edit.path == source.path}
    left = _lines_without_imports(_kept(source.text, own))
    there = Counter(_lines_without_imports(after, imports=True))
    missing = Counter(left) - there
    if missing:
        titles = ", ".join(sorted({fix.title for fix in fixes}))
        return Broken(
            "other bytes changed",
            titles,
            f"{list(missing)}\n" + _diff(source.text.encode(), after.encode()),
        )
    return None


def _kept(text: str, own: set[Edit]) -> str:
    """The lines of a text that no edit touches."""
    result = []
    for match in _LINES.finditer(text):
        start, end = match.span()
        touched = any(e.start < end and e.end > start or start <= e.start < end for e in own)
        touched = touched or any(e.start == e.end == len(text) == end for e in own)
        result.append("\n" if touched else match.group())
    return "".join(result)


def _lines_without_imports(text: str, *, imports: bool = False) -> list[str]:
    """The lines of a text that are not blank and belong to no import, roughly."""
    result, inside, in_parentheses = [], False, False
    for line in _LINES.findall(text):
        bare = line.strip()
        starts = re.search(r"(^|[;:]\s*)(import|from)\b", bare) is not None
        if starts and not imports:
            in_parentheses = "(" in bare and ")" not in bare
            inside = in_parentheses or bare.endswith("\\")
            continue
        if inside:
            inside = ")" not in bare and (in_parentheses or bare != "")
            continue
        if bare and bare != "pass":
            result.append(line.rstrip("\r\n"))
    return result


@dataclass(frozen=True)
class _Comment:
    text: str
    start: int
    statement: int  # where the logical line begins that it stands in
    depth: int  # of brackets


def comments(text: str) -> list[_Comment]:
    """The comments of a text that are for people."""
    starts = [0, *(match.end() for match in _LINES.finditer(text))]
    found: list[_Comment] = []
    depth = begun = 0
    fresh = True
    try:
        for token in tokenize.generate_tokens(StringIO(text, newline="").readline):
            at = starts[token.start[0] - 1] + token.start[1]
            if token.type == tokenize.COMMENT:
                if not _FOR_TOOLS.match(token.string):
                    statement = at if fresh else begun
                    found.append(_Comment(token.string.rstrip(), at, statement, depth))
            elif token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                fresh = True
            elif token.type != tokenize.NL:
                if fresh:
                    begun, fresh = at, False
                if token.type == tokenize.OP:
                    depth += (token.string in "([{") - (token.string in ")]}")
    except (tokenize.TokenError, SyntaxError):
        return []
    return found


def _comments(before: str, after: str, fixes: Sequence[Fix], path: str) -> Broken | None:
    """Whether comments are lost, other than with code that goes.

    With an argument go the comments beside and above it, with an import those in it and beside it,
    and with a definition or a whole block those in it.
    """
    lost = Counter(c.text for c in comments(before)) - Counter(c.text for c in comments(after))
    own = [edit for fix in fixes for edit in fix.edits if edit.path == path]
    for comment in comments(before) if lost else ():
        if not lost[comment.text] or comment.depth:
            continue
        if re.match(r"(import|from)\b", before[comment.statement :]):
            continue
        if any(
            edit.start <= comment.start < edit.end
            and _HEADER.search(before[edit.start : comment.start])
            for edit in own
        ):
            continue
        titles = ", ".join(sorted({fix.title for fix in fixes}))
        diff = _diff(before.encode(), after.encode())
        return Broken("lost comments", titles, f"{comment.text}\n{diff}")
    return None


def _render(result: object) -> None:
    from fsdplint.report import write
    from fsdplint.report.result import Result

    assert isinstance(result, Result)
    for name in FORMATS:
        for line in write(result, name):
            line.encode("utf-8", "backslashreplace")


def _compiles(data: bytes) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, "program.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    except RecursionError:
        return _parses(data)
    return True


def _parses(data: bytes) -> bool:
    try:
        ast.parse(data)
    except (SyntaxError, ValueError):
        return False
    except (RecursionError, MemoryError):
        return True
    return True


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "fsdplint" in frame.filename or "/rules/" in frame.filename]
    last = own[-2:] or frames[-1:]
    names = [f"{os.path.basename(frame.filename)}:{frame.name}" for frame in last]
    return f"{type(error).__name__} in {' > '.join(names)}"


def _diff(before: bytes, after: bytes) -> str:
    import difflib

    def lines(data: bytes) -> list[str]:
        return data.decode("utf-8", "backslashreplace").splitlines(keepends=True)

    return "".join(
        line if line.endswith("\n") else line + "\n"
        for line in difflib.unified_diff(lines(before), lines(after), "before", "after", n=3)
    )
