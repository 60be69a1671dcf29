"""Settings that a program reads from a YAML or JSON file of its repository.

What the file says is the default of a setting: another file, or the command line, may say something
else. So each value is unknown, and its name is the path of its keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Dict, Sequence, Unknown, Value, constant

if TYPE_CHECKING:
    from fsdplint.source import config_source
    from fsdplint.source.config_source import Mapping, Node, Scalar

MAX_DEPTH = 6  # of mappings and lists in others
MAX_ELEMENTS = 64  # of a list


def settings_in(run: Run, path: str, origin: str) -> Unknown | None:
    """The settings in a file; None if it cannot be read.

    Args:
        run: the run.
        path: the path as the program writes it.
        origin: the name of the value that holds all settings.
    """
    config = run.project.config(path, run.source.path)
    mapping = config.mapping if config is not None else None
    return None if mapping is None else _settings(mapping, Unknown(origin), 0)


def _settings(mapping: Mapping, result: Unknown, depth: int) -> Unknown:
    """A value whose attributes and elements are the entries of a mapping; it may have others."""
    result.default = entries = Dict(open=True)
    for entry in mapping:
        key = entry.key.text
        value = _setting(entry.value, Unknown(f"{result.origin}.{key}", owner=result), depth)
        result.parts[key] = result.parts[f"[{key!r}]"] = entries.items[key] = value
    return result


def _setting(node: Node, result: Unknown, depth: int) -> Value:
    from fsdplint.source import config_source as config

    if isinstance(node, config.Mapping) and depth < MAX_DEPTH:
        return _settings(node, result, depth + 1)
    if isinstance(node, config.Sequence) and depth < MAX_DEPTH:
        return _list(node, result, depth + 1)
    if isinstance(node, config.Scalar) and is_known(node):
        result.default = Const(node.value)
    return result


def _list(node: config_source.Sequence, result: Unknown, depth: int) -> Value:
    """A list in a file; what its mappings say are defaults again. An empty one shows nothing."""
    if not node.items or len(node.items) > MAX_ELEMENTS:
        return result
    elements: list[Value] = []
    for number, item in enumerate(node.items):
        value = _setting(item, Unknown(f"{result.origin}[{number}]", owner=result), depth)
        default = value.default if isinstance(value, Unknown) else None
        elements.append(default if isinstance(default, Const) else value)
    return Sequence(elements)


def is_whole_file(value: object) -> bool:
    """Whether a value is all settings of a file."""
    return isinstance(value, Unknown) and isinstance(value.default, Dict) and value.owner is None


def is_known(node: Scalar) -> bool:
    """Whether a value is written out: it is neither missing (`???`) nor made of others."""
    return node.text != "???" and "${" not in node.text


def default_of(value: object) -> object:
    """The constant that a setting is, or has by default; None if it has none."""
    if isinstance(value, Unknown):
        return constant(value.default)
    return value.value if isinstance(value, Const) else None
