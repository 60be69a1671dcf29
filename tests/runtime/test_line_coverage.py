"""Marks ahead of the lines in question."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from fsdplint.runtime.launch import line_coverage
from fsdplint.runtime.launch.line_coverage import Lines

pytestmark = pytest.mark.whole

PROGRAM = '''"""Docs."""
from __future__ import annotations

import math


def area(r):
    """Docs."""
    if r < 0:
        return -1
    elif r == 0:
        return 0
    return (
        math.pi
        * r
    )


@property
def never(self):
    return 1


try:
    x = area(2)
except ValueError:
    x = 0
else:
    x += 1
'''


def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, *lines: int) -> list[int]:
    path = tmp_path / "program.py"
    path.write_text(text)
    marks = Lines({str(path): list(lines)})
    monkeypatch.setattr(builtins, line_coverage._MARK, marks.mark, raising=False)
    exec(marks.compile(text.encode(), str(path)), {"__name__": "program"})
    return sorted(line for _, line in marks.seen)


def test_only_what_ran_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = range(1, len(PROGRAM.splitlines()) + 1)
    found = seen(tmp_path, monkeypatch, PROGRAM, *lines)
    # 9: the `if`; 11: its `elif`; 13 to 16: one statement over four lines.
    assert found == [4, 7, 9, 11, 13, 14, 15, 16, 19, 20, 24, 25, 29]


def test_the_program_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import sys\nwhere = [sys._getframe().f_lineno]\nfor i in range(2):\n    where.append(sys._getframe().f_lineno)\nassert where == [2, 4, 4]\n"
    assert seen(tmp_path, monkeypatch, text, 2, 4, 5) == [2, 4, 5]


def test_files_without_wanted_lines_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    code = Lines({}).compile(b"x = 1\n", str(path))
    assert code.co_names == ("x",)
