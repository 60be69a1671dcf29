"""The diff of a proof, line by line, with the fixes at the lines that they change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fsdplint.runtime.proof.verdicts import FixVerdict

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)")


@dataclass
class Row:
    """A row of the diff.

    kind: "file", "hunk", "same", "old" or "new".
    number: the line's number in the old file.
    fixes: the indices of the fixes at this line.
    """

    kind: str
    text: str
    number: int | None = None
    fixes: list[int] = field(default_factory=list)


def rows(diff: str, judged: list[FixVerdict], root: str) -> list[Row]:
    """The rows of a unified diff, with each fix, given by its index in `judged`, at its line.

    root: the folder of the project; the names in the diff are relative to it.
    """
    found = list(_rows(diff))
    path = ""
    wanted: dict[tuple[str, int], list[int]] = {}
    for index, one in enumerate(judged):
        if one.at is not None:
            wanted.setdefault((one.at.path, one.at.line), []).append(index)
    for row in found:
        if row.kind == "file":
            path = f"{root}/{row.text}"
        elif row.kind in ("old", "same") and row.number is not None:
            row.fixes = wanted.pop((path, row.number), [])
    return found


def _rows(diff: str) -> Iterator[Row]:
    old = 0
    for line in diff.splitlines():
        if line.startswith("--- "):
            yield Row("file", line[4:].strip())
        elif line.startswith("+++ "):
            continue
        elif (hunk := _HUNK.match(line)) is not None:
            old = int(hunk[1])
            yield Row("hunk", line)
        elif line.startswith("+"):
            yield Row("new", line[1:])
        elif line.startswith("-"):
            yield Row("old", line[1:], old)
            old += 1
        else:
            yield Row("same", line[1:], old)
            old += 1
