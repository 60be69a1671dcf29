"""Values of which a run makes so many that their size decides its memory."""

from __future__ import annotations

from dataclasses import fields

from fsdplint.interpreter.values import Unknown

# CPython shares the keys of the dicts of a class's objects up to this number (3.11 to 3.13).
SHARED_KEYS = 30


def test_unknown_values_share_the_keys_of_their_attributes() -> None:
    assert len(fields(Unknown)) < SHARED_KEYS
