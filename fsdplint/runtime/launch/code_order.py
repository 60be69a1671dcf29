"""Decides which of two places a program reaches first from a third one."""

from __future__ import annotations

from typing import Any

from fsdplint.runtime.launch.records import Line
from fsdplint.runtime.launch.source_loops import only_one_in_loop


def is_before(one: Line, other: Line, base: Line | None) -> bool:
    """Whether the program, continuing from `base`, reaches the place of `one` before `other`'s.

    The places are compared in the function in which their call stacks diverge. A place at or above
    `base` is reached only in the next turn of a loop. A place in the same loop as `base` is reached
    before a place after that loop.
    """
    ones, others = _frames(one), _frames(other)
    bases = _frames(base) if base is not None else []
    for index, (a, b) in enumerate(zip(ones, others, strict=False)):
        if a == b:
            continue
        if a[:2] != b[:2]:
            return False
        start = (0, 0)
        if len(bases) > index and bases[:index] == ones[:index] and bases[index][:2] == a[:2]:
            start = bases[index][2:]
            inside_loop = only_one_in_loop(a[0], start[0], a[2], b[2])
            if inside_loop:
                return inside_loop == 1
        again = _is_next_turn(ones[index:], bases[index:], start), a[2:]
        return again < (_is_next_turn(others[index:], bases[index:], start), b[2:])
    return False


def _frames(line: Line) -> list[tuple[Any, ...]]:
    """(path, first line of the function, line, column) of each frame, outermost first."""
    spans = [*line.get("stack", ()), line["at"]] if line.get("at") else []
    return [
        (span[0], first, span[1], span[2])
        for span, first in zip(spans, line.get("functions", ()), strict=False)
    ]


def _is_next_turn(frames: list[tuple[Any, ...]], bases: list[tuple[Any, ...]], start: Any) -> bool:
    """Whether the first frame is at or above `start`, and so in the next turn of the loop.

    False for a frame further down in the same call as the base.
    """
    place = frames[0][2:]
    if place != start:
        return bool(place < start)
    for frame, base in zip(frames[1:], bases[1:], strict=False):
        if frame != base:
            return frame[:2] != base[:2] or bool(frame[2:] < base[2:])
    return True
