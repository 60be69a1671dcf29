"""The JSON schemas of the reports, made from the types that the writers fill.

`python docs/schemas.py` writes `docs/schemas/`.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fsdplint.comparison.schema import ShardingPlan, Validation
from fsdplint.migration.report.schema import Migration
from fsdplint.report.schema import Check, Coverage, RulePage, Statistics
from fsdplint.report.urls import schema_url
from fsdplint.runtime.proof.reports.schema import Proof, Simulation

FOLDER = Path(__file__).parent / "schemas"
REPORTS: dict[str, type] = {
    "check": Check,
    "coverage": Coverage,
    "migration": Migration,
    "plan": ShardingPlan,
    "proof": Proof,
    "rule": RulePage,
    "simulation": Simulation,
    "statistics": Statistics,
    "validation": Validation,
}
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_ATTRIBUTE = re.compile(r"^    (\w+): (.*)")


def schema_of(name: str, *, closed: bool = False) -> dict[str, Any]:
    """The schema of a report.

    closed: whether it forbids keys that it does not name. The published schemas allow them, because
    a later release may write further keys.
    """
    definitions: dict[str, Any] = {}
    top = _object(REPORTS[name], definitions, closed)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": schema_url(name),
        "title": f"fsdplint: {name}",
        **top,
        "$defs": dict(sorted(definitions.items())),
    }


def text_of(name: str) -> str:
    """The file of a schema."""
    return json.dumps(schema_of(name), indent=2) + "\n"


def _object(kind: type, definitions: dict[str, Any], closed: bool) -> dict[str, Any]:
    """The schema of a type. The types that it uses are added to the definitions."""
    described = dict(_descriptions(kind))
    properties = {}
    for key, hint in get_type_hints(kind).items():
        value = _value(hint, definitions, closed)
        properties[key] = value | ({"description": described[key]} if key in described else {})
    required: Any = kind.__required_keys__  # type: ignore[attr-defined]
    made: dict[str, Any] = {
        "type": "object",
        "description": (kind.__doc__ or "").partition("\n")[0],
        "properties": properties,
        "required": [key for key in properties if key in required],
    }
    return made | ({"additionalProperties": False} if closed else {})


def _value(hint: Any, definitions: dict[str, Any], closed: bool) -> dict[str, Any]:
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if typing.is_typeddict(hint):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # a type may contain itself
            definitions[hint.__name__] = _object(hint, definitions, closed)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin is Literal:
        return {"const": parts[0]} if len(parts) == 1 else {"enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": _value(parts[0], definitions, closed)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _value(parts[1], definitions, closed)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_value(part, definitions, closed) for part in parts]}
    raise TypeError(f"{hint} has no form in a schema")


def _descriptions(kind: type) -> Iterator[tuple[str, str]]:
    """The attributes that the docstrings of a type and of its bases describe."""
    for base in _bases(kind):
        yield from _descriptions(base)
    name, text = "", ""
    for line in inspect.cleandoc(kind.__doc__ or "").partition("Attributes:")[2].splitlines():
        match = _ATTRIBUTE.match(line)
        if match is not None:
            if name:
                yield name, text
            name, text = match.groups()
        elif line.strip():
            text += " " + line.strip()
    if name:
        yield name, text


def _bases(kind: type) -> Iterator[type]:
    """The bases in the source: before Python 3.12 a `TypedDict` does not know them."""
    module = sys.modules[kind.__module__]
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            names = [base.id for base in node.bases if isinstance(base, ast.Name)]
            yield from (getattr(module, name) for name in names if name != "TypedDict")


def write() -> None:
    """Write all schemas."""
    FOLDER.mkdir(exist_ok=True)
    for name in REPORTS:
        (FOLDER / f"{name}.json").write_text(text_of(name), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(write())
