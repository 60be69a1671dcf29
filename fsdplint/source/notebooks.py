"""Jupyter notebooks: the Python of their code cells as one source.

The code cells are joined in order, separated by a line that names the cell. IPython lines that are
not Python (`%magic`, `!command`, `help?`) are masked by a name. Changes to the code are written
back into the cells; only the changed lines of the file change.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fsdplint.source.source import Source

SUFFIX = ".ipynb"
PYTHON_MAGICS = frozenset(["capture", "prun", "time", "timeit"])  # of a cell whose rest is Python

_SEPARATOR = "__fsdplint_cell_{}__"
_MASK = "__fsdplint_line_{}__"
_SEPARATORS = re.compile(r"^__fsdplint_cell_(\d+)__[ \t]*(?:\n|\Z)", re.MULTILINE)
_MASKS = re.compile(r"([ \t]*)__fsdplint_line_(\d+)__")
_SPACE = re.compile("[\ufeff \t\r\n]*")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_STATEMENT = re.compile(r"^([ \t]*)(?:[%!?/,;]|[\w.*%]+\?{1,2}[ \t]*(?:#.*)?$)")
_ASSIGNED = re.compile(r"^([ \t]*[\w., \t()\[\]]+=[ \t]*)[%!](?!=)")
_STRING = re.compile(r'[rRbBuUfFtT]{0,2}("""|\'\'\'|"|\')')
_ESCAPED = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")
_DECODER = json.JSONDecoder()


def is_start_of_cell(line: str) -> bool:
    """Whether a line of the joined code only separates two cells."""
    return _SEPARATORS.match(line) is not None


def is_placeholder(line: str) -> bool:
    """Whether a line of the joined code stands for a line of IPython or separates two cells."""
    return is_start_of_cell(line) or _MASKS.fullmatch(line) is not None


class NotebookError(ValueError):
    """The file is not a notebook, or a text no longer fits its cells."""


@dataclass(frozen=True)
class Cell:
    """A code cell.

    Attributes:
        number: its position among all cells, from 1.
        start, end: the span of its source in the file.
        items: the strings of the source, each with its offset in the file and its text.
        is_list: whether the source is a list of lines, not a single string.
        text: its code.
        masked: the code in which text that is not Python is masked.
        originals: the masked texts by the numbers of their masks, and whether each is a whole line.
    """

    number: int
    start: int
    end: int
    items: tuple[tuple[int, int, str], ...]
    is_list: bool
    text: str
    masked: str = ""
    originals: dict[int, tuple[str, bool]] = field(default_factory=dict)


class Notebook:
    """The file of a notebook."""

    def __init__(self, raw: str) -> None:
        """Raises NotebookError."""
        self.raw = raw
        try:
            found = _cells(raw)
        except (
            ValueError,
            IndexError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            deep = isinstance(error, RecursionError)
            reason = "nested too deeply to be read" if deep else "not a valid Jupyter notebook"
            raise NotebookError(reason) from error
        self.cells: list[Cell] = []
        number = 0
        for cell in found:
            masked, originals = _mask(cell.text, number)
            if masked is not None:
                number += len(originals)
                parts = (cell.number, cell.start, cell.end, cell.items, cell.is_list, cell.text)
                self.cells.append(Cell(*parts, masked, originals))
        non_ascii = not raw.isascii()
        self.ascii = not non_ascii and _ESCAPED.search(raw) is not None

    @property
    def code(self) -> str:
        """The code of all cells."""
        parts = []
        for number, cell in enumerate(self.cells):
            if number:
                parts.append(_SEPARATOR.format(cell.number) + "\n")
            parts.append(cell.masked)
            if cell.masked and not cell.masked.endswith("\n"):
                parts.append("\n")
        return "".join(parts)

    def texts(self, code: str) -> list[str]:
        """The texts of the cells in a changed code. Raises NotebookError."""
        pieces = _SEPARATORS.split(code)
        if [int(one) for one in pieces[1::2]] != [cell.number for cell in self.cells[1:]]:
            raise NotebookError("the boundaries of the cells would change")
        result = []
        for cell, piece in zip(self.cells, pieces[::2], strict=True):
            if sorted(int(one) for _, one in _MASKS.findall(piece)) != sorted(cell.originals):
                raise NotebookError("a line of IPython would leave its cell")
            text = _MASKS.sub(lambda match, c=cell: _original(c, match), piece)
            if text.endswith("\n") and not cell.text.endswith("\n"):
                text = text[:-1]
            result.append(text)
        return result

    def with_code(self, code: str) -> str:
        """The file with a changed code in its cells. Raises NotebookError."""
        parts, at = [], 0
        for cell, text in zip(self.cells, self.texts(code), strict=True):
            if text != cell.text:
                parts += [self.raw[at : cell.start], self._source(cell, text)]
                at = cell.end
        return "".join([*parts, self.raw[at:]])

    def _source(self, cell: Cell, text: str) -> str:
        """The source of a changed cell, in the same JSON form as before."""
        if not cell.is_list:
            return self._string(text)
        known = {item: self.raw[start:end] for start, end, item in cell.items}
        lines = [known.get(line) or self._string(line) for line in _LINE.findall(text)]
        if not lines or not cell.items:
            return "[" + ", ".join(lines) + "]"
        first, last = cell.items[0], cell.items[-1]
        before = self.raw[cell.start + 1 : first[0]]
        after = self.raw[last[1] : cell.end - 1]
        between = "," + before
        if len(cell.items) > 1:
            between = self.raw[first[1] : cell.items[1][0]]
        return "[" + before + between.join(lines) + after + "]"

    def _string(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=self.ascii)


def _original(cell: Cell, match: re.Match[str]) -> str:
    text, whole = cell.originals[int(match.group(2))]
    return text if whole else match.group(1) + text


class NotebookSource(Source):
    """The code of a notebook. `text` is the code to parse; the whole file is written."""

    def __init__(self, path: str, notebook: Notebook, text: str | None = None) -> None:
        super().__init__(path, notebook.code if text is None else text)
        self.notebook = notebook

    def with_text(self, text: str) -> NotebookSource:
        return NotebookSource(self.path, self.notebook, text)

    def validate(self) -> None:
        """Parse the text. Raises libcst.ParserSyntaxError or NotebookError."""
        super().validate()
        self.notebook.texts(self.text)

    def to_bytes(self, text: str) -> bytes:
        return self.notebook.with_code(text).encode("utf-8", "surrogateescape")

    def cell_of(self, line: int) -> tuple[int, int]:
        """The number of the cell and the line in the cell, for a line of the text; all count from
        1."""
        starts = self._cell_lines
        index = bisect_right([start for start, _ in starts], line) - 1
        start, number = starts[max(index, 0)]
        return number, max(line - start + 1, 1)

    @property
    def _cell_lines(self) -> list[tuple[int, int]]:
        """The first line of each cell, and its number."""
        cells = self.notebook.cells
        found = [(1, cells[0].number if cells else 1)]
        for match in _SEPARATORS.finditer(self.text):
            found.append((self.text.count("\n", 0, match.end()) + 1, int(match.group(1))))
        return found

    def cell_text(self, number: int) -> str:
        """The code of a cell as stored in the notebook."""
        texts = self.notebook.texts(self.text)
        return next(
            (t for c, t in zip(self.notebook.cells, texts, strict=True) if c.number == number), ""
        )

    def in_file(self, line: int, column: int) -> tuple[int, int]:
        """The line and column in the stored file of a position in the text."""
        number, row = self.cell_of(line)
        cell = next(one for one in self.notebook.cells if one.number == number)
        raw = self.notebook.raw
        if cell.is_list and row <= len(cell.items):
            start, _, item = cell.items[row - 1]
            before = self.notebook._string(item[: column - 1])[:-1]
        else:
            start, before = cell.start, ""
        line_start = raw.rfind("\n", 0, start) + 1
        return raw.count("\n", 0, start) + 1, start - line_start + len(before) + 1


class CellSource(Source):
    """The original code of one cell, which need not be valid Python."""

    def with_text(self, text: str) -> CellSource:
        return CellSource(self.path, text)

    def validate(self) -> None:
        """Accept any text."""


def python_of(data: bytes) -> bytes:
    """The Python in the file of a notebook, for the prefilter; empty if the file is invalid."""
    try:
        return Notebook(data.decode("utf-8-sig")).code.encode("utf-8", "surrogatepass")
    except (NotebookError, UnicodeDecodeError):
        return b""


# Reading the file -------------------------------------------------------------------------------


def _cells(raw: str) -> list[Cell]:
    top = {key: (start, end) for key, start, end in _members(raw, _skip(raw, 0))}
    metadata = _value(raw, top["metadata"][0]) if "metadata" in top else {}
    if _language(metadata) not in (None, "python", "ipython"):
        return []
    result = []
    for number, (start, _) in enumerate(_elements(raw, top["cells"][0]), 1):
        members = {key: at for key, at, _ in _members(raw, start)}
        if _value(raw, members["cell_type"]) != "code":
            continue
        cell_metadata = _value(raw, members["metadata"]) if "metadata" in members else {}
        if cell_metadata.get("vscode", {}).get("languageId", "python") != "python":
            continue
        result.append(_cell(raw, number, members["source"]))
    return result


def _cell(raw: str, number: int, at: int) -> Cell:
    source, end = _DECODER.raw_decode(raw, at)
    if isinstance(source, str):
        return Cell(number, at, end, ((at, end, source),), False, source)
    items = tuple((*place, _value(raw, place[0])) for place in _elements(raw, at))
    return Cell(number, at, end, items, True, "".join(source))


def _language(metadata: Any) -> str | None:
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        found = metadata.get(key, {}).get(name)
        if isinstance(found, str):
            return found.lower()
    return None


def _value(raw: str, at: int) -> Any:
    return _DECODER.raw_decode(raw, at)[0]


def _skip(raw: str, at: int) -> int:
    match = _SPACE.match(raw, at)
    assert match is not None
    return match.end()


def _members(raw: str, at: int) -> Iterator[tuple[str, int, int]]:
    """The keys of an object, and the spans of their values."""
    at = _expect(raw, at, "{")
    while raw[at] != "}":
        key, at = _DECODER.raw_decode(raw, at)
        start = _expect(raw, _skip(raw, at), ":")
        _, end = _DECODER.raw_decode(raw, start)
        yield key, start, end
        at = _skip(raw, end)
        at = _skip(raw, at + 1) if raw[at] == "," else at


def _elements(raw: str, at: int) -> Iterator[tuple[int, int]]:
    """The spans of the elements of a list."""
    at = _expect(raw, at, "[")
    while raw[at] != "]":
        _, end = _DECODER.raw_decode(raw, at)
        yield at, end
        at = _skip(raw, end)
        at = _skip(raw, at + 1) if raw[at] == "," else at


def _expect(raw: str, at: int, character: str) -> int:
    if raw[at] != character:
        raise NotebookError(f"{character} expected")
    return _skip(raw, at + 1)


# What is no Python ------------------------------------------------------------------------------


def _mask(text: str, first: int) -> tuple[str | None, dict[int, tuple[str, bool]]]:
    """A cell's text with other text than Python masked, and the masked texts.

    The text is None if the cell holds no Python.
    """
    originals: dict[int, tuple[str, bool]] = {}
    lines = _LINE.findall(text)
    begun = next((n for n, line in enumerate(lines) if line.strip()), None)
    magic = re.match(r"%%(\w+)", lines[begun].strip()) if begun is not None else None
    if magic is not None and magic.group(1) not in PYTHON_MAGICS:
        return None, {}
    state = _State()
    continued, indent = False, ""
    result = []
    for line in lines:
        body = line.rstrip("\r\n")
        kept = indent if continued else _python_part(body, state)
        if kept is None:
            state.read(line)
            result.append(line)
            continue
        number = first + len(originals)
        originals[number] = (body, True) if continued else (body[len(kept) :], False)
        indent = kept[: len(kept) - len(kept.lstrip())]
        result.append(kept + _MASK.format(number) + line[len(body) :])
        continued = body.endswith("\\")
    return "".join(result), originals


def _python_part(line: str, state: _State) -> str | None:
    """The Python part of a line that also holds other text."""
    if state.inside:
        return None
    match = _STATEMENT.match(line) or _ASSIGNED.match(line)
    return match.group(1) if match is not None else None


class _State:
    """Whether the next line begins inside a string, a bracket or a continued line."""

    def __init__(self) -> None:
        self.quote = ""
        self.depth = 0
        self.backslash = False

    @property
    def inside(self) -> bool:
        return bool(self.quote) or self.depth > 0 or self.backslash

    def read(self, line: str) -> None:
        at = 0
        self.backslash = False
        while at < len(line):
            if self.quote:
                at = self._string(line, at)
                continue
            character = line[at]
            match = _STRING.match(line, at)
            if match is not None:
                self.quote = match.group(1)
                at = match.end()
            elif character == "#":
                return
            elif character == "\\" and not line[at + 1 :].strip("\r\n"):
                self.backslash = True
                return
            else:
                self.depth += (character in "([{") - (character in ")]}")
                self.depth = max(self.depth, 0)
                # A string prefix counts only at the start of a word.
                word = re.match(r"\w+", line[at:])
                at += word.end() if word is not None and not _STRING.match(line, at) else 1

    def _string(self, line: str, at: int) -> int:
        end = at
        while end < len(line):
            if line[end] == "\\":
                end += 2
            elif line.startswith(self.quote, end):
                end += len(self.quote)
                self.quote = ""
                return end
            else:
                end += 1
        if len(self.quote) == 1 and not line.rstrip("\r\n").endswith("\\"):
            self.quote = ""  # unterminated, so not Python
        return end
