"""Finds the line of the user's code that an event belongs to."""

from __future__ import annotations

import itertools
import linecache
import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from fsdplint.trace import Location

# A span as it is written to the record: path, line, column, end line, end column.
Span = list[Any]


class RecordedSite:
    """The site of an event during recording, created from its span."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def path(self) -> str:
        return self._span[0]

    def location(self) -> Location:
        return Location(*self._span)


USER, LIBRARY, TORCH, STDLIB, OWN = "user", "library", "torch", "stdlib", "own"


def _folder(path: str) -> str:
    return os.path.realpath(path) + os.sep


_OWN_FOLDER = _folder(str(Path(__file__).resolve().parents[2]))
_STDLIB_FOLDERS = tuple({_folder(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
_PACKAGE_PARTS = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_kinds: dict[str, str] = {}
_paths: dict[str, str] = {}
_spans: dict[tuple[CodeType, int], Span] = {}


def kind_of(filename: str) -> str:
    """Whose code a file holds: the user's, a library's, torch's, Python's or fsdplint's own."""
    kind = _kinds.get(filename)
    if kind is None:
        kind = _kinds[filename] = _classify(filename)
    return kind


def _classify(filename: str) -> str:
    if filename.startswith("<"):
        # Code that is generated at run time: dataclasses, functions of torch, frozen importlib.
        return STDLIB
    path = os.path.realpath(filename)
    _paths[filename] = path
    if path.startswith(_OWN_FOLDER):
        return OWN
    for part in _PACKAGE_PARTS:
        if part in path:
            package = path.rsplit(part, 1)[1].split(os.sep)[0]
            return TORCH if package in ("torch", "functorch") else LIBRARY
    if path.startswith(_STDLIB_FOLDERS):
        return STDLIB
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__ is not None:  # a torch built in place
        if path.startswith(_folder(os.path.dirname(torch.__file__))):
            return TORCH
    return USER


def is_direct(frame: FrameType | None) -> bool:
    """Whether the frame belongs to the user or a library, and not to torch."""
    return frame is not None and kind_of(frame.f_code.co_filename) in (USER, LIBRARY)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code; of a library's code if there is none."""
    library = None
    while frame is not None:
        kind = kind_of(frame.f_code.co_filename)
        if kind == USER:
            return frame
        if kind == LIBRARY and library is None:
            library = frame
        frame = frame.f_back
    return library


def span_of(frame: FrameType) -> Span:
    """The current span of a frame: columns from 1, end exclusive; only lines before Python 3.11."""
    code, last = frame.f_code, frame.f_lasti
    span = _spans.get((code, last))
    if span is None:
        kind_of(code.co_filename)
        path = _paths.get(code.co_filename, code.co_filename)
        span = _spans[(code, last)] = _span(path, frame.f_lineno, code, last)
    return span


def _span(path: str, line: int, code: CodeType, last: int) -> Span:
    if sys.version_info < (3, 11) or last < 0:
        return [path, line, 1, line, 1]
    start, end, column, end_column = next(
        itertools.islice(code.co_positions(), last // 2, None), (None, None, None, None)
    )
    if start is None or end is None or column is None or end_column is None:
        return [path, line, 1, line, 1]
    return [path, start, _characters(path, start, column), end, _characters(path, end, end_column)]


def _characters(path: str, line: int, byte: int) -> int:
    """The column in characters, from 1, of a byte offset in a line."""
    text = linecache.getline(path, line)
    if text.isascii():
        return byte + 1
    return len(text.encode()[:byte].decode(errors="ignore")) + 1


def stack_of(frame: FrameType | None) -> tuple[list[Span], list[int]]:
    """The spans of the user's frames above `frame`, outermost first, without `frame` itself.

    The second list has the first lines of their functions, followed by that of `frame`'s function.
    """
    spans: list[Span] = []
    functions: list[int] = []
    if frame is not None:
        functions.append(frame.f_code.co_firstlineno)
        frame = frame.f_back
    while frame is not None:
        if kind_of(frame.f_code.co_filename) == USER:
            spans.append(span_of(frame))
            functions.append(frame.f_code.co_firstlineno)
        frame = frame.f_back
    spans.reverse()
    functions.reverse()
    return spans, functions


def is_result_dropped(frame: FrameType) -> bool:
    """Whether the frame does not use the result of the call that it executes."""
    return _next_operation(frame) in ("POP_TOP", "RETURN_VALUE")


def is_statement(frame: FrameType) -> bool:
    """Whether the call that the frame executes is a statement."""
    return _next_operation(frame) == "POP_TOP"


def _next_operation(frame: FrameType) -> str:
    import dis

    after = (one for one in dis.get_instructions(frame.f_code) if one.offset > frame.f_lasti)
    return next((one.opname for one in after if one.opname not in ("CACHE", "NOP")), "")


def names_read_later(frame: FrameType) -> set[str]:
    """The variables that the frame may read after the call that it executes."""
    import dis

    code = frame.f_code
    later = [one for one in dis.get_instructions(code) if one.offset > frame.f_lasti]
    if any("BACKWARD" in one.opname for one in later):
        later = list(dis.get_instructions(code))
    inside = [one for part in code.co_consts if isinstance(part, CodeType)
              for one in dis.get_instructions(part)]  # fmt: skip
    found: set[str] = set()
    for one in (*later, *inside):
        if one.opname.startswith("LOAD_"):
            found.update(one.argval if isinstance(one.argval, tuple) else [one.argval])
    return found


def is_attribute_load(frame: FrameType) -> bool:
    """Whether the frame itself reads an attribute (`m.name`), not by a call of `hasattr`."""
    import opcode

    try:
        name = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
    except IndexError:
        return False
    return name.startswith(("LOAD_ATTR", "LOAD_METHOD"))
