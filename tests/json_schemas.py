"""The JSON schemas of the reports, as tests use them: keys without a description are errors."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema

DOCS = Path(__file__).parents[1] / "docs"


@cache
def schemas() -> ModuleType:
    """The module that makes the schemas."""
    spec = importlib.util.spec_from_file_location("report_schemas", DOCS / "schemas.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """The validator of a report that also refuses keys which the schema does not name."""
    schema = schemas().schema_of(name, closed=True)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def validate(name: str, data: Any) -> None:
    """Raise an error if the data of a report are not as its schema says."""
    validator(name).validate(data)
    assert data["schema_version"] == 1
