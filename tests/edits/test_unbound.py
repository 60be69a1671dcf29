"""Names that a change leaves unbound."""

from __future__ import annotations

import pytest

from fsdplint.edits.unbound import lost_names
from fsdplint.source.source import Source

BEFORE = "options = {}\nmake(**options)\n"


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        ("options = {1: f()}\ndef f():\n    pass\n", ["`f` before its definition in train.py"]),
        ("def f():\n    pass\noptions = {1: f()}\n", []),
        ("options = {1: lambda: f()}\ndef f():\n    pass\n", []),
        ("def g():\n    return f()\ndef f():\n    pass\n", []),
        ("if options:\n    f()\ndef f():\n    pass\n", ["`f` before its definition in train.py"]),
    ],
)
def test_a_new_function_is_read_after_its_definition(after: str, lost: list[str]) -> None:
    head = "def make(**options):\n    pass\n"
    before, changed = Source("train.py", head + BEFORE), Source("train.py", head + BEFORE + after)
    found = [text for text, _ in lost_names({"train.py": before}, {"train.py": changed})]
    assert found == lost
