"""The lines that edits change, before and after."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fsdplint.diagnostics.finding import Edit
from fsdplint.edits.lines import lines_of


@dataclass
class Region:
    """Adjacent lines that change together.

    Attributes:
        line: the first line (from 1) that changes; for insertions, the line after them.
        count: the number of original lines; 0 for insertions.
        new_line: the first of the lines in the changed text.
        before, after: the original and the changed lines.
        first, last: the lines that the edits touch, including those that stay the same.
        edits: the edits of these lines.
    """

    line: int
    count: int
    new_line: int
    before: list[str]
    after: list[str]
    first: int
    last: int
    edits: list[Edit] = field(default_factory=list)

    def touches(self, first: int, last: int) -> bool:
        """Whether the edits touch lines first..last."""
        return self.first <= last and first <= self.last


def regions(text: str, edits: Iterable[Edit]) -> list[Region]:
    """The changed lines of a text, in order; touched lines that stay the same are left out.

    edits: the edits of one file, ordered and not overlapping.
    """
    lines = lines_of(text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    result: list[Region] = []
    shift = 0
    for first, last, group in _groups(text, starts, len(lines), edits):
        region = _region(lines, starts, first, last, group, shift)
        shift += len(region.after) - region.count
        if region.before != region.after:
            result.append(region)
    return result


def _groups(
    text: str, starts: Sequence[int], count: int, edits: Iterable[Edit]
) -> Iterable[tuple[int, int, list[Edit]]]:
    """Edits of adjacent lines, with the indices (from 0) of the first line and the line after."""
    groups: list[tuple[int, int, list[Edit]]] = []
    for edit in edits:
        first = min(bisect_right(starts, edit.start) - 1, count)
        last = bisect_right(starts, edit.end) - 1
        if edit.end > starts[last] or not _whole_lines(text, starts, edit):
            last += 1
        last = min(max(first, last), count)
        if groups and first <= groups[-1][1]:
            start, end, group = groups.pop()
            groups.append((start, max(end, last), [*group, edit]))
        else:
            groups.append((first, last, [edit]))
    return groups


def _whole_lines(text: str, starts: Sequence[int], edit: Edit) -> bool:
    """Whether an edit removes and inserts only whole lines."""
    begins = starts[bisect_right(starts, edit.start) - 1] == edit.start
    return begins and (not edit.text or edit.text.endswith(("\n", "\r")))


def _region(
    lines: Sequence[str],
    starts: Sequence[int],
    first: int,
    last: int,
    edits: list[Edit],
    shift: int,
) -> Region:
    before = list(lines[first:last])
    text = "".join(before)
    base = starts[first]
    parts = []
    position = 0
    for edit in edits:
        parts += [text[position : edit.start - base], edit.text]
        position = edit.end - base
    after = lines_of("".join(parts) + text[position:])
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    before, after = before[head : len(before) - tail], after[head : len(after) - tail]
    line = first + head + 1
    return Region(
        line=line,
        count=len(before),
        new_line=line + shift,
        before=before,
        after=after,
        first=first + 1,
        last=max(last, first + 1),
        edits=edits,
    )
