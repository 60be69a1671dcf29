"""Reading files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fsdplint.source import reading
from fsdplint.source.files import MAX_BYTES, Unreadable, check_text, read_source, too_large


def problem(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(Unreadable) as caught:
        read_source(path)
    found = caught.value.problem
    assert found.path == str(path)
    assert found.hint
    return f"{found.line}: {found.message}"


@pytest.mark.parametrize(
    ("data", "text", "encoding", "bom"),
    [
        (b"", "", "utf-8", False),
        (b"x = 1\r\ny = 2\r\n", "x = 1\r\ny = 2\r\n", "utf-8", False),
        (b"\xef\xbb\xbfx = '\xc3\xa4'\n", "x = 'ä'\n", "utf-8", True),
        (
            b"# -*- coding: latin-1 -*-\nx = '\xe4'\n",
            "# -*- coding: latin-1 -*-\nx = 'ä'\n",
            "iso-8859-1",
            False,
        ),
        (b"x = 1", "x = 1", "utf-8", False),
    ],
)
def test_readable(tmp_path: Path, data: bytes, text: str, encoding: str, bom: bool) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(data)
    source = read_source(file)
    assert (source.text, source.encoding, source.bom) == (text, encoding, bom)
    assert source.to_bytes(source.text) == data


def test_not_utf8(tmp_path: Path) -> None:
    assert problem(tmp_path / "a.py", b"x = 1\n\n\ny = '\xe4'\n").startswith("4: not UTF-8")
    assert problem(tmp_path / "a.py", b"x = '\xe4'\n").startswith("1: not UTF-8")


def test_wrong_encodings(tmp_path: Path) -> None:
    head = b"# coding: "
    assert problem(tmp_path / "a.py", head + b"klingon\n") == "1: unknown encoding: klingon"
    assert "unknown encoding" in problem(tmp_path / "a.py", head + b"rot13\n")
    assert "ascii" in problem(tmp_path / "a.py", head + b"ascii\nx = '\xe4'\n")


def test_syntax_error_has_its_line_and_pythons_words(tmp_path: Path) -> None:
    found = problem(tmp_path / "a.py", b"import fsdp\n\nf(1,\n")
    assert found == "3: syntax error: '(' was never closed"


def test_null_bytes(tmp_path: Path) -> None:
    assert "null byte" in problem(tmp_path / "a.py", b"x = 1\0\n")
    assert problem(tmp_path / "b.py", b"x = 1\ny = '\0'\n") == "2: syntax error: null byte"


def test_missing_and_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreadable) as caught:
        read_source(tmp_path / "no.py")
    assert caught.value.problem.message == "no such file or folder"

    def refuse(path: Path, limit: int) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(reading, "read", refuse)
    with pytest.raises(Unreadable) as caught:
        read_source(tmp_path / "a.py")
    assert caught.value.problem.message == "permission denied"
    assert "readable" in caught.value.problem.hint


def test_too_large(tmp_path: Path) -> None:
    found = problem(tmp_path / "a.py", b"x = 1\n" * (MAX_BYTES // 6 + 1))
    assert found.startswith("None: too large to check (2,097,156 bytes; the limit is 2,097,152 b")


@pytest.mark.parametrize(
    ("size", "limit", "words"),
    [
        (11, 10, "(11 bytes; the limit is 10 bytes)"),
        (5_100_000, 99_999, "(5,100,000 bytes; the limit is 99,999 bytes)"),
        (2_000_001, 2_000_000, "(2,000,001 bytes; the limit is 2,000,000 bytes)"),
        (5_100_000, 2_000_000, "(5.1 MB; the limit is 2.0 MB)"),
    ],
)
def test_the_sizes_of_what_is_too_large(size: int, limit: int, words: str) -> None:
    assert too_large(Path("a.py"), size, limit).message == f"too large to check {words}"


def test_lone_carriage_returns(tmp_path: Path) -> None:
    assert problem(tmp_path / "a.py", b"x = 1\ry = 2\r").startswith("1: a line ends with a lone")


NESTED = {
    "brackets": "(" * 2000 + "1" + ")" * 2000,
    "lists": "[" * 300 + "]" * 300,
    "calls": "f(" * 5000 + ")" * 5000,
    "unary": "not " * 10_000 + "1",
    "attributes": "a" + ".b" * 5000,
    "sum": "1" + "+1" * 10_000,
    "conditional": "1 if 1 else " * 10_000 + "1",
    "lambdas": "lambda: " * 5000 + "1",
    "strings": "x = (" + '"a"\n' * 5000 + ")",
    "elif": "if 1:\n pass\n" + "elif 1:\n pass\n" * 5000,
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED.keys())
def test_too_deep_is_refused_before_it_is_parsed(tmp_path: Path, text: str) -> None:
    assert "nested too deeply" in problem(tmp_path / "a.py", text.encode() + b"\n")


ALLOWED = {
    "brackets": "(" * 190 + "1" + ")" * 190,
    "dicts": "{1:" * 190 + "1" + "}" * 190,
    "unary": "not " * 900 + "1",
    "attributes": "a" + ".b" * 900,
    "conditional": "1 if 1 else " * 490 + "1",
    "strings": "x = (" + '"a"\n' * 900 + ")",
    "elif": "if 1:\n pass\n" + "elif 1:\n pass\n" * 900,
    "long but flat": "x = [" + "a.b(1 + 2),\n" * 5000 + "]",
    "brackets in strings": "x = '''" + "(" * 3000 + "'''",
    "brackets in comments": "# " + "(" * 3000,
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_let_through_can_be_worked_with(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.py").write_text(ALLOWED[name] + "\n")
    program = """
import sys
from pathlib import Path
from fsdplint.source.files import read_source
from fsdplint.source.nesting import deep_stack
def job():
    source = read_source(Path(sys.argv[1]))
    source.span(source.tree.body[0] if source.tree.body else source.tree)
    return source.tree.code == source.text
print(deep_stack(job))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.py")], capture_output=True, text=True
    )
    assert done.stdout == "True\n", done.stderr[-2000:]


def test_check_text(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    assert check_text(path, b"x = 1\n") is None
    assert check_text(path, b"x =" * MAX_BYTES) is None  # large and of no interest
    broken = check_text(path, b"def f(:\n")
    assert broken is not None and broken.message.startswith("syntax error")
    deep = check_text(path, NESTED["brackets"].encode())
    assert deep is not None and deep.message == "nested too deeply to be read"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def f():\n    x = 1\n\\\nz = 2\n", 3),
        ("x = 1\n  \\\ny = 2\n", 2),
        ('x = """\n\\\n"""\n', None),
        ("x = [\n\\\n1]\n", None),
    ],
)
def test_a_line_with_a_backslash_only(tmp_path: Path, text: str, line: int | None) -> None:
    """The parser takes what follows it into the block before it."""
    path = tmp_path / "a.py"
    path.write_text(text)
    if line is None:
        assert read_source(path).text == text
        return
    with pytest.raises(Unreadable) as caught:
        read_source(path)
    assert caught.value.problem.line == line
