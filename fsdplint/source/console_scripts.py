"""The console scripts of a project: functions that an installed command calls without arguments.

A program may have no other start: `[project.scripts]` of `pyproject.toml`, those of Poetry, and
`console_scripts` in `setup.cfg` and in `setup.py`.
"""

from __future__ import annotations

import ast
import configparser
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from fsdplint.source import reading

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TARGET = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def console_scripts(root: str) -> tuple[tuple[str, str], ...]:
    """The dotted modules and the functions of the scripts of a project, each once."""
    texts = [
        *_of_toml(_text(root, "pyproject.toml")),
        *_of_cfg(_text(root, "setup.cfg")),
        *_of_setup(_text(root, "setup.py")),
    ]
    found = (_TARGET.fullmatch(text.partition("[")[0].strip()) for text in texts)
    return tuple(dict.fromkeys((one[1], one[2]) for one in found if one is not None))


def _text(root: str, name: str) -> str:
    try:
        data = reading.read(os.path.join(root, name), reading.MAX_SETTINGS_BYTES)
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return ""


def _of_toml(text: str) -> Iterator[str]:
    try:
        document: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    for path in (("project", "scripts"), ("tool", "poetry", "scripts")):
        table = document
        for key in path:
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            yield from (value for value in table.values() if isinstance(value, str))


def _of_cfg(text: str) -> Iterator[str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
        lines = parser.get("options.entry_points", "console_scripts", fallback="")
    except configparser.Error:
        return
    yield from (line.partition("=")[2] for line in lines.splitlines())


def _of_setup(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "console_scripts":
                    yield from _lines(value)


def _lines(value: ast.expr) -> Iterator[str]:
    items = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    for item in items:
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield from (line.partition("=")[2] for line in item.value.splitlines())
