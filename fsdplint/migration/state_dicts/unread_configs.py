"""Configs of states that a variable or an attribute of a class holds, and that nothing reads."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.migration.context import Migration, expression
from fsdplint.migration.rewriters import rewrites
from fsdplint.migration.state_dicts.kinds import MODULE
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant

CONFIGS = tuple(
    f"{layout}{of}StateDictConfig"
    for layout in ("Full", "Sharded", "Local")
    for of in ("", "Optim")
)


@rewrites(*CONFIGS)
def config(migration: Migration, source: Source, node: cst.CSTNode, name: str) -> None:
    """Write the options of FSDP2 with the same meaning."""
    call = source.parent(node)
    if (
        not isinstance(call, cst.Call)
        or call.func is not node
        or not _is_unread(migration, source, call)
    ):
        return
    named, rest = arguments(call, ("offload_to_cpu",))
    if rest:
        return
    parts = ["full_state_dict=True"] if name.startswith("Full") else []
    offload = named.get("offload_to_cpu")
    if offload is not None and not is_constant(offload.value, "False"):
        parts.append(f"cpu_offload={expression(migration, source, offload.value)}")
    migration.account_for(source, call)
    options = migration.need(source, MODULE, "StateDictOptions", call)
    migration.put_call(source, call, options, parts)


def _is_unread(migration: Migration, source: Source, call: cst.Call) -> bool:
    """Whether a call is the value of a name that occurs nowhere else in the program."""
    statement = source.parent(call)
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0].target
    name = target.attr if isinstance(target, cst.Attribute) else target
    if not isinstance(name, cst.Name):
        return False
    word = re.compile(rf"\b{name.value}\b")
    return sum(_occurrences(one, word) for one in migration.program.sources.values()) == 1


def _occurrences(source: Source, word: re.Pattern[str]) -> int:
    """How often the code of a file has a word; text in comments does not count."""
    if not word.search(source.text):
        return 0
    return sum(
        len(word.findall(node.value))
        for node in source.descend(source.tree)
        if isinstance(node, cst.Name | cst.SimpleString)
    )
