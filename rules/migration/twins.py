"""Settings of the same kind in other files, which have to change along.

A class of settings whose FSDP1 enums become strings may have sisters: one for each program that uses
the same code, given to it by a framework (hydra) or by name, so that no value shows it. A sister that
keeps the enum would be compared with strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import libcst as cst

from fsdplint.files import project_files, project_root
from fsdplint.program.source import Source
from fsdplint.rules.migration.components import Part, components
from fsdplint.rules.migration.context import Blocked, Migration, nodes
from fsdplint.rules.migration.scopes import ancestors

ENUMS = ("ShardingStrategy", "StateDictType")
CONSTRUCTOR = "FullyShardedDataParallel"


def check(migration: Migration) -> list[Blocked]:
    """The blockers: a class of the same name, in a file that does not belong to any migration with a
    constructor, still has FSDP1's enum.
    """
    found = list(_settings(migration))
    if not found:
        return []
    whole = migration.program.whole if isinstance(migration.program, Part) else migration.program
    own = {Path(source.path).resolve() for source in migration.sources}
    elsewhere = {
        Path(source.path).resolve()
        for group in components(whole)
        if any(CONSTRUCTOR in source.text for source in group)
        for source in group
    }
    blockers = []
    roots = {project_root(Path(source.path)): Path(source.path) for source, _, _ in found}
    for path in (file for root in roots.values() for file in project_files(root)):
        if path.resolve() in own | elsewhere:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if CONSTRUCTOR in text:  # a program of its own
            continue
        for source, node, enum in found:
            if _is_sister(text, node.name.value, enum):
                reason = (
                    f"`{node.name.value}` of {path.name} is written with `{enum}` too: "
                    "name that file, and those that use it, as well"
                )
                migration.program.wanted.add(path)
                blockers.append(Blocked(source, node, reason))
                break
    return blockers


def _is_sister(text: str, name: str, enum: str) -> bool:
    return (
        re.search(rf"^class {name}\b", text, re.MULTILINE) is not None
        and re.search(rf"\b{enum}\b", text) is not None
        and "torch.distributed.fsdp" in text
    )


def _settings(migration: Migration) -> Iterator[tuple[Source, cst.ClassDef, str]]:
    """The classes in whose bodies (not in a method) an enum of FSDP1 becomes a string."""
    seen: set[cst.ClassDef] = set()
    for source in migration.sources:
        for node in nodes(source):
            enum = migration.names.get(node, "").partition(".")[0]
            if enum not in ENUMS or node not in migration.claimed:
                continue
            for outer in ancestors(source, node):
                if isinstance(outer, cst.FunctionDef):
                    break
                if isinstance(outer, cst.ClassDef):
                    if outer not in seen:
                        seen.add(outer)
                        yield source, outer, enum
                    break
