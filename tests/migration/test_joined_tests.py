"""The text of alternative tests of a module."""

from __future__ import annotations

import pytest

from fsdplint.migration.constructor.joined_tests import joined

CASES = {
    "two classes": (
        ["isinstance(module, Block)", "isinstance(module, nn.Embedding)"],
        "isinstance(module, (Block, nn.Embedding))",
    ),
    "tuples": (
        ["isinstance(module, (A, B))", "isinstance(module, (B, C))", "isinstance(module, (D,))"],
        "isinstance(module, (A, B, C, D))",
    ),
    "one class twice": (
        ["isinstance(module, Block)", "isinstance(module, Block)"],
        "isinstance(module, Block)",
    ),
    "another test between": (
        ["isinstance(module, A)", "is_large(module)", "isinstance(module, B)"],
        "isinstance(module, A) or is_large(module) or isinstance(module, B)",
    ),
    "computed classes": (
        ["isinstance(module, A)", "isinstance(module, tuple(classes))"],
        "isinstance(module, A) or isinstance(module, tuple(classes))",
    ),
    "another variable": (
        ["isinstance(module, A)", "isinstance(m, B)"],
        "isinstance(module, A) or isinstance(m, B)",
    ),
}


@pytest.mark.parametrize(("tests", "text"), CASES.values(), ids=list(CASES))
def test_tests_of_classes_are_one(tests: list[str], text: str) -> None:
    assert joined(tests, "module") == text
