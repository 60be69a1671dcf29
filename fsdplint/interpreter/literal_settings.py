"""Settings that a program has in its own text: `yaml.safe_load("...")` and `json.loads("...")`.

Nothing replaces them when the program starts, so that they are constants, and no defaults.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fsdplint.interpreter.values import Const, Dict, Sequence, Unknown, Value

if TYPE_CHECKING:
    from fsdplint.source.config_source import Node

_FLOAT = re.compile(r"[-+]?[0-9]+\.[0-9]*([eE][-+][0-9]+)?")  # as PyYAML and JSON have them
_OCTAL = re.compile(r"[-+]?0[0-9_]+")
_NUMBER = re.compile(r"[-+.]?[0-9][0-9_.eExXoO:+-]*")  # what may be a number, a date, or a text


def literal_settings(text: str, *, is_json: bool) -> Value | None:
    """The value of a YAML or JSON text; None if it is no mapping that can be read."""
    from fsdplint.source.config_source import ConfigSource

    top = ConfigSource("settings.json" if is_json else "settings.yaml", text).mapping
    return None if top is None else _value(top)


def _value(node: Node) -> Value:
    from fsdplint.source import config_source as config

    if isinstance(node, config.Mapping):
        return Dict({entry.key.value: _value(entry.value) for entry in node})
    if isinstance(node, config.Sequence):
        return Sequence([_value(item) for item in node.items])
    if not isinstance(node, config.Scalar):
        return Unknown()
    value = node.value
    if not node.quote and _OCTAL.fullmatch(node.text):
        return Unknown()
    if node.quote or not isinstance(value, str):
        return Const(value)
    if _FLOAT.fullmatch(value):
        return Const(float(value))
    return Unknown() if _NUMBER.fullmatch(value) else Const(value)
