"""Patches."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fsdplint.report.unified_diff import unified


def test_nothing_for_equal_texts() -> None:
    assert list(unified("a.py", "x\n", "x\n")) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb", "a\nb\nc"),
        ("a\nb", "a\nb\n"),
        ("a\r\nb\r\n", "a\r\nB\r\n"),
        ("a\x0cb\u2028c\nd\n", "a\x0cb\u2028c\nD\n"),
        ("", "a\n"),
    ],
)
def test_a_patch_tool_gets_the_new_text(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "a.py").write_bytes(old.encode())
    patch = "".join(unified("a.py", old, new))
    subprocess.run(
        ["git", "apply", "-p0", "--whitespace=nowarn", "-"],
        input=patch.encode(),
        cwd=tmp_path,
        check=True,
    )
    assert (tmp_path / "a.py").read_bytes() == new.encode()
