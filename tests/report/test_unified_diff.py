"""Unified diffs: that `patch` makes the new file of the old one with them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fsdplint.report.unified_diff import unified_diff

CASES = {
    "a line": ("a\nb\nc\n", "a\nx\nc\n"),
    "no final newline": ("a\nb", "a\nc"),
    "a final newline more": ("a\nb", "a\nb\n"),
    "a final newline less": ("a\nb\n", "a\nb"),
    "CRLF": ("a\r\nb\r\nc\r\n", "a\r\nx\r\nc\r\n"),
    "form feeds and other separators": ("a\x0cb\u2028c\nd\n", "a\x0cb\u2028c\ne\n"),
    "a lone carriage return": ("a\rb\nc\n", "a\rb\nd\n"),
    "to nothing": ("a\n", ""),
    "from nothing": ("", "a\n"),
    "two places": ("".join(f"{n}\n" for n in range(40)), "".join(f"{n % 30}\n" for n in range(40))),
}


def test_what_it_looks_like() -> None:
    assert unified_diff("a b.py", "1\n2\n3\n4\n5\n6", "1\n2\n3\n4\n5\n7") == (
        "--- a b.py\t\n+++ a b.py\t\n@@ -3,4 +3,4 @@\n 3\n 4\n 5\n"
        "-6\n\\ No newline at end of file\n+7\n\\ No newline at end of file\n"
    )


def test_the_same_text_has_no_diff() -> None:
    assert unified_diff("a.py", "a\n", "a\n") == ""


def test_a_file_with_carriage_returns_only() -> None:
    assert unified_diff("a.py", "a\rb\r", "a\rc\r") == (
        "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    )


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize(("old", "new"), CASES.values(), ids=list(CASES))
def test_git_applies_it(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(old.encode())
    patch = unified_diff("train.py", old, new)
    subprocess.run(
        ["git", "apply", "-p0", "--whitespace=nowarn", "-"],
        cwd=tmp_path,
        input=patch.encode(),
        check=True,
        env={"GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PATH": "/usr/bin:/bin"},
    )
    assert path.read_bytes() == new.encode()
