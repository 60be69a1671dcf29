"""A process group of all ranks: FSDP2 shards over them without a mesh."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from fsdplint.migration.analysis.variables import definitions
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


def names_all_ranks(
    migration: Migration, source: Source, values: Mapping[str, cst.BaseExpression]
) -> bool:
    """Whether the `process_group` among some arguments of FSDP1 is certainly None, or that of all ranks."""
    group, chosen = values.get("process_group"), values.get("sharding_strategy")
    if group is None:
        return False
    if is_always_none(source, group):
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


def is_always_none(source: Source, value: cst.BaseExpression) -> bool:
    """Whether an expression is None, or a variable that is None wherever it is assigned."""
    if isinstance(value, cst.Name) and value.value != "None":
        made = definitions(source, value)
        return bool(made) and all(is_constant(one.value, "None") for one in made or ())
    return is_constant(value, "None")
