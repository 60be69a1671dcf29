"""Which of two places a program reaches first, going on from a third."""

from __future__ import annotations

from typing import Any

from fsdplint.runtime.launch.records import Line
from fsdplint.runtime.launch.source_loops import only_one_in_loop


def is_before(one: Line, other: Line, base: Line | None) -> bool:
    """Whether, going on from `base`, the program reaches the code of `one` before `other`'s.

    Both are compared in the function in which their ways part. A place at or above `base` is
    reached only after another turn of the loop; what is in a loop with the base is reached before
    what stands behind that loop.
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
            turning = only_one_in_loop(a[0], start[0], a[2], b[2])
            if turning:
                return turning == 1
        again = _again(ones[index:], bases[index:], start), a[2:]
        return again < (_again(others[index:], bases[index:], start), b[2:])
    return False


def _frames(line: Line) -> list[tuple[Any, ...]]:
    """(path, first line of the function, line, column) of each frame, outermost first."""
    spans = [*line.get("stack", ()), line["at"]] if line.get("at") else []
    return [
        (span[0], first, span[1], span[2])
        for span, first in zip(spans, line.get("functions", ()), strict=False)
    ]


def _again(frames: list[tuple[Any, ...]], bases: list[tuple[Any, ...]], start: Any) -> bool:
    """Whether the first frame is at or above the place `start`: another turn of the loop.

    A frame that is in the call that the base is in, further down, is not.
    """
    place = frames[0][2:]
    if place != start:
        return bool(place < start)
    for frame, base in zip(frames[1:], bases[1:], strict=False):
        if frame != base:
            return frame[:2] != base[:2] or bool(frame[2:] < base[2:])
    return True
