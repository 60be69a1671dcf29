"""Parsing only what changed gives the tree, the places and the parents of parsing everything."""

from __future__ import annotations

import random
from pathlib import Path

import libcst as cst
import pytest

from fsdplint.source.files import read_source
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import walk

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").glob("fsdp*/*.py"))
PROGRAM = '''\
"""A program."""
# of two lines
import os

def one(a):
    return a
    # the end of one

# of two
@os.fspath
def two():
    """Text."""
    for n in range(3):
        print(n)

    # the end of two
# behind it
x = 1; y = 2


class Three:
    z = """
q = 1
"""

    def four(self): return 4

if x:
    one(y)
else:
    two()
print(x)
'''
PIECES = [
    "x = 1\n", "    y = 2\n", "# note\n", "    # inside\n", "\n", "if a:\n    b()\n", "else:\n    c()\n",
    "def f():\n", "@deco\n", '"""', "(", ")", "\\\n", "    ", "async ", "except E:\n    y\n", "\t", "; z",
    ":", "class A:\n  def m(self):\n    return 1\n", "match x:\n    case 1: pass\n", "pass\n", "e", ".",
]  # fmt: skip


def parsed(text: str) -> cst.Module | None:
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError:
        return None


def typed(before: Source, text: str) -> Source:
    source = Source("program.py", text)
    before.typed_in = True
    source.earlier = before
    return source


def edited(text: str, chance: random.Random) -> str:
    """The text with something typed into it, taken away or put elsewhere."""
    lines = text.splitlines(keepends=True)
    line, place = chance.randrange(len(lines) + 1), chance.randrange(len(text) + 1)
    what = chance.random()
    if what < 0.45:
        return "".join([*lines[:line], chance.choice(PIECES), *lines[line:]])
    if what < 0.6:
        return "".join(lines[:line] + lines[line + chance.randint(1, 3) :])
    if what < 0.8:
        return text[:place] + chance.choice(PIECES) + text[place:]
    if what < 0.9:
        return text[:place] + text[place + chance.randint(1, 5) :]
    return "".join(lines[:line] + lines[place % len(lines) :][:3] + lines[line:])


def same(source: Source, whole: cst.Module) -> None:
    assert source.tree.deep_equals(whole)
    for name in ("default_indent", "default_newline", "has_trailing_newline", "encoding"):
        assert getattr(source.tree, name) == getattr(whole, name)
    if whole.code != source.text:
        return  # what libcst itself loses
    other = Source(source.path, source.text)
    mine, others = walk(source), walk(other)
    assert [type(node) for node in mine] == [type(node) for node in others]
    assert [source.span(node) for node in mine] == [other.span(node) for node in others]
    above = [[source.parent(node) for node in mine], [other.parent(node) for node in others]]
    assert [type(node) for node in above[0]] == [type(node) for node in above[1]]
    assert len(source._spans) == len(other._spans)
    assert len(source._parents) == len(other._parents)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_typed_into_a_program(seed: int) -> None:
    chance = random.Random(seed)
    texts = [PROGRAM, FIXTURES[seed].read_text(encoding="utf-8")]
    reused = 0
    for number in range(10):
        source = Source("program.py", texts[number % 2])
        for _ in range(4):
            text = edited(source.text, chance)
            whole, after = parsed(text), typed(source, text)
            if whole is None:
                with pytest.raises(cst.ParserSyntaxError):
                    _ = after.tree
                continue
            if number % 2 == 0:
                same(after, whole)
            else:
                assert after.tree.deep_equals(whole)
            reused += bool(after._renewals)
            source = after
    assert reused > 6  # else nothing is shown


def test_statements_elsewhere_stay_the_same_nodes() -> None:
    before = Source("program.py", PROGRAM)
    after = typed(before, PROGRAM.replace("x = 1;", "x = 3\nw = 1;"))
    old, new = before.tree.body, after.tree.body
    assert len(new) == len(old) + 1
    assert all(a is b for a, b in zip(old[:4], new[:4], strict=True))
    assert all(a is b for a, b in zip(old[5:], new[6:], strict=True))
    assert after.span(new[6]) == tuple(place + 6 for place in before.span(old[5]))


def test_the_first_text_is_not_taken_for_ever() -> None:
    source = Source("program.py", PROGRAM)
    seen = set()
    for number in range(120):
        source = typed(source, PROGRAM.replace("x = 1;", f"x = {number};"))
        seen.add(id(source.tree.body[-1]))
    assert len(seen) > 1


def test_the_next_text_keeps_what_is_known_of_the_statements(tmp_path: Path) -> None:
    source = read_source(tmp_path / "train.py", PROGRAM)
    source.typed_in = True
    for text in (PROGRAM + "x = 2\n", PROGRAM + "x = 3\n"):
        known = set(source.parts)
        source = read_source(tmp_path / "train.py", text, source)
        assert source.span(source.tree.body[0])
    kept = known.intersection(source.parts)
    assert len(kept) > 5
    assert all("_state" in vars(part) for part in kept)  # where its nodes are
