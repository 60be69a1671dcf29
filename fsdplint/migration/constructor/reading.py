"""Reads expressions that FSDP1's constructor gets, and the variables in them."""

from __future__ import annotations

import re
from pathlib import Path

import libcst as cst

from fsdplint.migration.analysis.variables import Definition, definitions
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.layout import descend


def offloads(text: str) -> str:
    """When an argument offloads: "True", a condition, or "?" if another variable decides."""
    name = r"[\w.]*CPUOffloadPolicy\([^()]*\)"
    if re.fullmatch(name, text):
        return "True"
    chosen = re.fullmatch(rf"{name} if (.+) else [\w.]*\bOffloadPolicy\(\)", text)
    return chosen[1] if chosen is not None else "?"


def policy_variable(text: str) -> str:
    """The variable in `policy` or `policy or OffloadPolicy()`; "" for other texts."""
    found = re.fullmatch(r"([\w.]+)(?: or [\w.]*\bOffloadPolicy\(\))?", text)
    return found[1] if found is not None else ""


def imported_definitions(
    migration: Migration, source: Source, name: cst.Name
) -> tuple[Source, list[Definition]]:
    """The file and the assignments of a variable that another one of these files defines."""
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(name), name.value)
    items = [x for x in scope.imports if x.local == name.value] if scope is not None else []
    for other in migration.sources if len(items) == 1 else ():
        if Path(other.path).stem == items[0].module.rpartition(".")[2]:
            target = next(
                (
                    part
                    for part in other.descend(other.tree)
                    if isinstance(part, cst.Name) and part.value == items[0].name
                ),
                None,
            )
            found = definitions(other, target) if target is not None else None
            if found and all(_at_top(other, item) for item in found):
                return other, found
    return source, []


def _at_top(source: Source, item: Definition) -> bool:
    """Whether an assignment is an unconditional statement of the module."""
    return source.parent(source.parent(item.statement)) is source.tree  # type: ignore[arg-type]


def to_empty_device(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The device in `lambda m: m.to_empty(device=...)`, None for other functions."""
    if not isinstance(node, cst.Lambda) or len(node.params.params) != 1:
        return None
    call = node.body
    if isinstance(call, cst.IfExp):  # ranks without weights of their own
        call = call.body if is_constant(call.orelse, "None") else call.orelse
    return device_of_to_empty(call, node.params.params[0].name.value)


def device_of_to_empty(call: cst.BaseExpression, name: str) -> cst.BaseExpression | None:
    """The device in `name.to_empty(device=...)`, None for other expressions."""
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return None
    owner = call.func.value
    if call.func.attr.value != "to_empty" or not isinstance(owner, cst.Name) or owner.value != name:
        return None
    return next(
        (a.value for a in call.args if a.keyword is None or a.keyword.value == "device"), None
    )


def references(migration: Migration, node: cst.CSTNode) -> list[cst.CSTNode]:
    """The references to FSDP1 within a node."""
    return [part for part in descend(node) if part in migration.names]
