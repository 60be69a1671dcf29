"""Whole states of compiled models: torch's getter leaves out the `_orig_mod.` that FSDP1 keeps in names."""

from __future__ import annotations

import libcst as cst

from fsdplint.program.source import Source
from fsdplint.program.values import ModuleValue
from fsdplint.rules.migration.context import Migration
from fsdplint.rules.migration.text import atom, call, quoted

PREFIX = "_orig_mod."


def is_compiled(migration: Migration, node: cst.BaseExpression) -> str:
    """Whether a node is a compiled model: "always", "sometimes" or "" for not."""
    values = migration.values(node)
    found = [isinstance(v, ModuleValue) and v.wrapper == "compile" for v in values]
    if not any(found):
        return ""
    return "always" if all(found) else "sometimes"


def take(
    migration: Migration, source: Source, node: cst.Call, getter: str, given: list[str]
) -> None:
    """Put a getter's call in place of `state_dict()`, and give the names back their prefix."""
    quote = quoted(source, "")[0]
    items = call(
        source,
        migration.indent(source, node),
        f"for name, value in {getter}",
        given,
        ".items()",
        depth=1,
    )
    text = f"{{\n\tf{quote}{PREFIX}{{name}}{quote}: value\n\t{items}\n}}"
    migration.substitute(source, node, migration.placed(source, node, text))


def without_prefix(source: Source, state: str) -> str:
    """The text of a state with the names that torch's setter knows."""
    name = f"name.removeprefix({quoted(source, PREFIX)})"
    return f"{{{name}: value for name, value in {atom(state)}.items()}}"
