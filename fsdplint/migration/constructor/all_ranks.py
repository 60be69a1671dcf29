"""A process group of all ranks: FSDP2 shards over them without a mesh."""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from fsdplint.interpreter.values import is_none
from fsdplint.migration.analysis.variables import definitions, home_of
from fsdplint.migration.constructor import strategy
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant

GROUPS = (
    "torch.distributed.group.WORLD",
    "torch.distributed.GroupMember.WORLD",
    "torch.distributed._get_default_group",
    "torch.distributed.distributed_c10d._get_default_group",
)
HIDDEN = re.compile(r"\b(exec|globals|setattr)\s*\(")  # may set any variable


def names_all_ranks(
    migration: Migration, source: Source, values: Mapping[str, cst.BaseExpression]
) -> bool:
    """Whether the `process_group` among some arguments of FSDP1 is certainly None, or that of all ranks."""
    group, chosen = values.get("process_group"), values.get("sharding_strategy")
    if group is None:
        return False
    if is_always_none(migration, source, group):
        return True
    if chosen is not None and not is_constant(chosen, "None"):
        name = strategy.literal(migration, chosen)
        found = {name} if name else strategy.choices(migration, chosen)
        if found & set(strategy.HYBRID):
            return False
    if isinstance(group, cst.Name):
        made = definitions(source, group)
        if not made or len(made) != 1:
            return False
        group = made[0].value
    if isinstance(group, cst.Call):
        return not group.args and migration.symbol(group.func) in GROUPS
    return migration.symbol(group) in GROUPS


def is_always_none(migration: Migration, source: Source, value: cst.BaseExpression) -> bool:
    """Whether an expression is None, or a variable that is None wherever it is assigned."""
    if not isinstance(value, cst.Name) or value.value == "None":
        return is_constant(value, "None")
    made = definitions(source, value)
    if not made or not all(is_constant(one.value, "None") for one in made):
        return False
    if not all(map(is_none, migration.values(value))):
        return False
    return home_of(source, value) is not source.tree or not _may_be_set(migration, source, value)


def _may_be_set(migration: Migration, source: Source, name: cst.Name) -> bool:
    """Whether code may set a variable of a file without naming it in an assignment of the file."""
    if HIDDEN.search(source.text):
        return True
    attribute = re.compile(rf"\.\s*{re.escape(name.value)}\s*=(?!=)")
    return any(attribute.search(one.text) for one in migration.program.sources.values())
