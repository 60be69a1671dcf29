"""Comments that mark what blocks a migration: above every kind of statement, and gone without a trace."""

from __future__ import annotations

import ast
from collections.abc import Callable

import libcst as cst
import pytest

from fsdplint.edits.annotations import with_blocker_comments, without_annotations
from fsdplint.source.source import Source

SHAPES = [
    "x = F(1)\n",
    "x = F(\n    1,\n    F(2),\n)\n",
    "if F(1):\n    pass\nelif F(2):\n    y = F(3)\nelse:\n    F(4)\n",
    "@F(1)\n@F(2)\ndef f(a=F(3)):\n    return F(4)\n",
    "class A(F(1)):\n    x = F(2)\n    # c\n    @F(3)\n    def m(self): return F(4)\n",
    "try:\n    F(1)\nexcept F(2):\n    F(3)\nelse:\n    F(4)\nfinally:\n    F(5)\n",
    "with F(1) as a, \\\n     F(2) as b:\n    F(3)\n",
    "x = '''\n# fsdplint: FSDP201 blocks the migration: text\n'''; F(1)\n",
    "a = 1; F(1); b = F(2)\n",
    "if a: F(1); F(2)\nelse: F(3)\n",
    "for i in F(1):\n\tF(2)\nelse:\n\tF(3)\n",
    "while F(1):\n  F(2)\n",
    "match F(1):\n    case 1 if F(2):\n        F(3)\n    case _: F(4)\n",
    "x = [F(1)\n     for y in F(2)\n     if F(3)]\n",
    "f = lambda: F(1)\n",
    "async def g():\n    async with F(1): await F(2)\n    async for x in F(3): pass\n",
    "assert F(1), \\\n    F(2)\n",
    'def f():\n    """Doc."""\n    return (\n        # inner\n        F(1)\n    )',
    "if a: \\\n  F(1)\n",
    "x = f'{F(1)}'\n",
    "\f\nx = F(1)\n",
    "#!/usr/bin/env python\n# coding: utf-8\nF(1)\n",
    "\\\nF(1)\n",
    "def f(\n    a: F(1) = 2,\n    # note\n    *, b=F(3),\n) -> F(4): ...\n",
    "if 1:\n    pass\n    # trailing\n# last\nelse:\n    F(1)\n",
]
WHICH: list[Callable[[int], bool]] = [lambda i: True, lambda i: i == 0, lambda i: i % 2 == 1]
Mark = tuple[cst.CSTNode, str, str]


def marked(text: str, which: Callable[[int], bool], encoding: str = "utf-8") -> str:
    """The text with comments on some of its calls of `F`."""
    source = Source("p.py", text, encoding=encoding)
    nodes = [
        node
        for node in source._parents
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "F"
    ]
    nodes.sort(key=source.span)
    marks: list[Mark] = [
        (node, "FSDP201", f"`F`\n number {source.code(node.args[0])}")
        for number, node in enumerate(nodes)
        if which(number)
    ]
    return with_blocker_comments(source, marks)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_statement(shape: str, newline: str) -> None:
    text = shape.replace("\n", newline)
    meaning = ast.dump(ast.parse(text))
    for which in WHICH:
        new = marked(text, which)
        assert ast.dump(ast.parse(new)) == meaning
        assert marked(new, which) == new, "the second time changes nothing"
        assert without_annotations(Source("p.py", new)) == text
        assert marked(new, lambda i: i == 1) == marked(text, lambda i: i == 1), "stale ones go"
        if newline == "\r\n":
            assert "\n" not in new.replace("\r\n", "")


def test_where_the_comments_stand() -> None:
    text = marked("if a:\n\tpass\nelif F(1):\n\tx = [\n\t\tF(2),  # why\n\t]\n", lambda i: True)
    assert text == (
        "if a:\n"
        "\tpass\n"
        "# fsdplint: FSDP201 blocks the migration: `F` number 1\n"
        "elif F(1):\n"
        "\t# fsdplint: FSDP201 blocks the migration: `F` number 2\n"
        "\tx = [\n"
        "\t\tF(2),  # why\n"
        "\t]\n"
    )


def test_what_an_encoding_lacks_is_escaped() -> None:
    source = Source("p.py", "F(1)\n", encoding="ascii")
    (statement,) = source.tree.body
    assert with_blocker_comments(source, [(statement, "FSDP201", "`ü`")]).startswith(
        "# fsdplint: FSDP201 blocks the migration: `\\xfc`\n"
    )
