"""Nodes of files with form feeds have the places that they have in the text."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from fsdplint.source.files import read_source

TEXTS = {
    "before a statement": "first()\n\f\nsecond()\n\fthird()\n",
    "before an indented statement": "if x:\n    first()\n\f    second()\nthird()\n",
    "before a block": "for x in y:\n\f    first()\n    second()\nthird()\n",
    "in an empty line of a block": "if x:\n    first()\n\f\n    second()\nthird()\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_calls_stand_where_they_are_written(text: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(text, newline="")
    source = read_source(file)
    found = _calls(source.tree)
    names = [source.code(node.func) for node in found]
    assert sorted(names) == ["first", "second", "third"]
    for node in found:
        start, end = source.span(node)
        assert text[start:end] == f"{source.code(node.func)}()"


def _calls(node: cst.CSTNode) -> list[cst.Call]:
    own = [node] if isinstance(node, cst.Call) else []
    return own + [call for child in node.children for call in _calls(child)]
