"""Settings that a program has in its own text."""

from __future__ import annotations

import pytest

from fsdplint.interpreter.literal_settings import literal_settings
from fsdplint.interpreter.values import Const, Dict, Sequence, Unknown, Value

YAML = """
model: {width: 12, rate: 0.5, name: net, deep: no}
steps: [1, 2]
mode: 010
when: 2024-01-01
text: "3"
"""


def plain(value: Value) -> object:
    if isinstance(value, Dict):
        return {key: plain(item) for key, item in value.items.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value.items]
    if isinstance(value, Const):
        return value.value
    assert isinstance(value, Unknown)
    return ...


def test_yaml_is_read_as_pyyaml_does() -> None:
    value = literal_settings(YAML, is_json=False)
    assert value is not None
    assert plain(value) == {
        "model": {"width": 12, "rate": 0.5, "name": "net", "deep": False},
        "steps": [1, 2],
        "mode": ...,
        "when": ...,
        "text": "3",
    }


def test_json_is_read() -> None:
    value = literal_settings('{"on": true, "none": null, "rate": 1.0, "small": 1e3}', is_json=True)
    assert value is not None
    assert plain(value) == {"on": True, "none": None, "rate": 1.0, "small": ...}


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", ""])
def test_other_texts_are_unknown(text: str) -> None:
    assert literal_settings(text, is_json=False) is None
