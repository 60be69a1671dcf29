"""Patterns are matched as pathspec matches them, and in bounded time."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from fsdplint.config.patterns import compile_patterns

PIECES = ["a", "b", "ab", ".", "*", "?", "[ab]", "/", "**/", "/**/", "/**", "!"]
NAMES = st.text("ab.", min_size=1, max_size=5)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9), min_size=1, max_size=3),
    st.lists(NAMES, min_size=1, max_size=5),
)
def test_the_verdict_is_that_of_pathspec(pieces: list[list[str]], names: list[str]) -> None:
    lines = ["".join(one) for one in pieces]
    try:
        known = GitIgnoreSpec.from_lines(lines)
    except ValueError:
        return
    path = "/".join(names)
    for one in (path, path + "/"):
        assert compile_patterns(lines).check_file(one).include == known.check_file(one).include


def test_a_set_of_characters_never_holds_the_slash() -> None:
    """As git has it; pathspec lets `[!a]` be one."""
    assert not compile_patterns(["x[!a]*b*c"]).match_file("x/bc")


HOSTILE = ["*".join("a" * 22) + "b", "a/" + "**/a/" * 22 + "b", "*?" * 25 + "b", "[!b]*" * 25 + "b"]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_many_stars_do_not_hang(pattern: str) -> None:
    code = (
        "import sys; from fsdplint.config.patterns import compile_patterns as compiled; one = compiled([sys.argv[1]])\n"
        "for path in ('a' * 240, '/'.join('a' * 1500)): assert not one.match_file(path)"
    )
    subprocess.run([sys.executable, "-c", code, pattern], check=True, timeout=120)
