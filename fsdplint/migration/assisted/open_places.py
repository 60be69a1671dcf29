"""The places of a file that raise until a person has decided about them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.migration.assisted.lines import CODE_BELOW, DECIDE, PREFIX

RAISED = "NotImplementedError"
_CODE = re.compile(r" \((FSDP\d+-[\w-]+)\)$")
_HEADS = 4  # lines of a function or class between a comment and its `raise`


@dataclass(frozen=True)
class OpenPlace:
    """A `raise` that waits for a decision.

    Attributes:
        line: its line.
        decision: what a person has to decide, in one sentence.
        blocker: the stable code of the reason, "" if it is unknown.
        reason: all that the comment above says.
        old: the lines for FSDP1.
    """

    line: int
    decision: str
    blocker: str
    reason: str
    old: tuple[str, ...]


def open_places(text: str) -> list[OpenPlace]:
    """The places of a file in order; none if the text is not Python."""
    if PREFIX not in text or RAISED not in text:
        return []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines = text.splitlines()
    found = sorted(_raise_statements(tree))
    return [_place(lines, line, message) for line, message in found]


def _raise_statements(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines and messages of the statements that raise."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        if not isinstance(node.exc.func, ast.Name) or node.exc.func.id != RAISED:
            continue
        message = node.exc.args[0] if node.exc.args else None
        if isinstance(message, ast.Constant) and str(message.value).startswith(PREFIX):
            yield node.lineno, str(message.value).removeprefix(PREFIX)


def _place(lines: list[str], line: int, message: str) -> OpenPlace:
    code = _CODE.search(message)
    reason, old = _comment(lines, line)
    return OpenPlace(
        line, _CODE.sub("", message), code.group(1) if code is not None else "", reason, old
    )


def _comment(lines: list[str], line: int) -> tuple[str, tuple[str, ...]]:
    """The words and the old lines of the comment above a line."""
    end = line - 1
    for _ in range(_HEADS):
        if end and not lines[end - 1].lstrip().startswith("#"):
            end -= 1
    start = end
    while start and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    block = [one.lstrip()[1:].removeprefix(" ") for one in lines[start:end]]
    first = next((number for number, one in enumerate(block) if one.startswith(DECIDE)), None)
    if first is None or CODE_BELOW not in block:
        return "", ()
    middle = block.index(CODE_BELOW)
    old = tuple(one.removeprefix("    ") for one in block[middle + 1 :])
    return " ".join(block[first:middle]), old
