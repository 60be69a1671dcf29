"""How deeply the code of a file is nested, computed on its text before a recursive parser runs.

The syntax tree's native parser recurses and, given a few thousand nested brackets, ends the
process. The walks over the tree recurse in Python. Both are safe within the bounds below when they
run on the stack that `deep_stack` provides; a file beyond them is refused.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import TypeVar

T = TypeVar("T")

MAX_BRACKETS = 200  # CPython's own bound
MAX_DEPTH = 1000  # of one expression: brackets, operators, attributes, calls and adjoining strings
MAX_BRANCHES = 1000  # of one if ... elif ... elif

STACK_BYTES = 256 * 1024 * 1024  # reserved, not used: only touched pages cost memory
RECURSION_LIMIT = 20_000
STACK_SLOTS = 1 << 18  # a power of two; see `_on_one_chunk`

_TOKEN = re.compile(
    r"""
    (?P<string>[rRbBuUfFtT]{0,2}(?:
        \"\"\"[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*\"\"\" | '''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''
      | "[^"\\\n]*(?:\\.[^"\\\n]*)*" | '[^'\\\n]*(?:\\.[^'\\\n]*)*' ))
    | (?P<skip>\#[^\n]* | \\\r?\n | \d[\w.]*)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<end>[,;\n])
    | (?P<link>[-+~.*/%@&|^] | \b(?:not|and|or|if|lambda|await|for)\b)
    | \w+
    """,
    re.VERBOSE | re.DOTALL,
)
_BRACE = re.compile(r"\{\{|[{}]")  # two opening ones stand for one character
_BRANCH = re.compile(r"^([ \t]*)(if|elif)\b", re.MULTILINE)


def too_deep(text: str) -> int | None:
    """The line on which the code is nested too deeply to be parsed, or None.

    The depth is an upper bound on that of the syntax tree: within one expression every operator,
    attribute, call and adjoining string counts one level.
    """
    links = [0]  # for each open bracket, the links of the expression that it stands in
    depth = 0
    for match in _TOKEN.finditer(text):
        group = match.lastgroup
        if group is None or group == "skip":
            continue
        if group == "string" and _braces(match.group()) > MAX_BRACKETS:
            return text.count("\n", 0, match.start()) + 1
        if group == "end":
            if len(links) == 1 or match.group() == ",":
                depth -= links[-1]
                links[-1] = 0
        elif group == "close":
            if len(links) > 1:
                depth -= links.pop()
        else:
            links[-1] += 1
            depth += 1
            if group == "open":
                links.append(0)
            if depth > MAX_DEPTH or len(links) > MAX_BRACKETS:
                return text.count("\n", 0, match.start()) + 1
    return _too_many_branches(text)


def _braces(string: str) -> int:
    """How deeply the replacement fields of an f-string are nested."""
    if "{" not in string or "f" not in string[:2].lower():
        return 0
    depth = deepest = 0
    for match in _BRACE.finditer(string):
        brace = match.group()
        depth = max(depth + (brace == "{") - (brace == "}"), 0)
        deepest = max(deepest, depth)
    return deepest


def _too_many_branches(text: str) -> int | None:
    if text.count("elif") <= MAX_BRANCHES:
        return None
    branches: dict[str, int] = {}
    for match in _BRANCH.finditer(text):
        indent, word = match.groups()
        branches[indent] = branches.get(indent, 0) + 1 if word == "elif" else 0
        if branches[indent] > MAX_BRANCHES:
            return text.count("\n", 0, match.start()) + 1
    return None


def deep_stack(function: Callable[[], T]) -> T:
    """Call `function` with a stack that is deep enough for any file that `too_deep` accepts.

    Exceptions of the function are raised here.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(_on_one_chunk(function))
        except BaseException as error:
            errors.append(error)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, RECURSION_LIMIT))
    before = threading.stack_size(STACK_BYTES)
    try:
        thread = threading.Thread(target=target, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):  # the address space is too small
            return function()
        finally:
            threading.stack_size(before)
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
    if errors:
        raise errors[0]
    return results[0]


def _call(function: Callable[[], T]) -> T:
    return function()


# CPython keeps the frames of Python functions in chunks of 16 KiB, maps a chunk when a call needs
# it, and unmaps it when that call returns. A loop whose calls cross the end of a chunk maps and
# unmaps one each time, and can take 50 times as long. The chunk for a large frame is twice as
# large as the frame, so that the frames above this one find room in it. Only the pages that they
# use cost memory.
_on_one_chunk = FunctionType(_call.__code__.replace(co_stacksize=STACK_SLOTS), globals())
