"""All refactorings, one module a theme."""

from refactorings import (
    blocks,
    calls,
    classes,
    conditions,
    entries,
    escapes,
    halves,
    imports,
    loops,
    object_model,
    settings,
    several_files,
    unknown_code,
    values,
)

__all__ = [
    "blocks",
    "calls",
    "classes",
    "conditions",
    "entries",
    "escapes",
    "halves",
    "imports",
    "loops",
    "object_model",
    "settings",
    "several_files",
    "unknown_code",
    "values",
]
