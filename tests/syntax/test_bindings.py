"""Which names the scopes of a file bind and use."""

from __future__ import annotations

import pytest
from rewriting import source_of

from fsdplint.syntax.bindings import bindings_of


@pytest.mark.parametrize(
    "code, expected",
    [
        ("a.b.c", ["a.b.c"]),
        ("make(a).weight", ["a", "make"]),
        ("(a or b.c).weight", ["a", "b.c"]),
        ("a[b].c.d(e)", ["a", "b", "e"]),
    ],
)
def test_names_below_an_attribute_are_used(code: str, expected: list[str]) -> None:
    assert sorted(bindings_of(source_of(f"{code}\n")).module.references) == expected
