"""Settings of the same kind in other files, which have to change as well.

Each program that uses the same code may have its own class of settings. A framework (hydra) or a
name selects the class, so no value shows the relation. The code reads a field by its name: if one
class has strings after the migration, a class that keeps the enum would be compared with strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from fsdplint.migration.analysis.components import components, full_program
from fsdplint.migration.analysis.importing_files import (
    file_not_given,
    relative_path,
    unread_files,
)
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.program import SETTING_NOT_IMPORTED
from fsdplint.migration.constructor.strategy import ENUM
from fsdplint.migration.context import Migration
from fsdplint.migration.names import FSDP, PREFIX, fsdp1_name
from fsdplint.source.files import Unreadable, read_bytes, read_source
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.qualified_names import references

ENUMS = (ENUM, "StateDictType")


@dataclass(frozen=True)
class Setting:
    """A field in the body of a class whose value or type is an enum of FSDP1."""

    field: str
    enum: str
    node: cst.ClassDef


def check(migration: Migration) -> list[Blocked]:
    """The blockers of fields of the same name that keep FSDP1's enum.

    Their files do not belong to a migration with a constructor call.
    """
    changed: dict[tuple[str, str], tuple[Source, Setting]] = {}
    for source in migration.sources:
        for one in _settings(source):
            changed.setdefault((one.field, one.enum), (source, one))
    if not changed:
        return []
    blockers = []
    own = [Path(source.path) for source, _ in changed.values()]
    full_program(migration.program).projects.queries.searched += map(str, own)
    for path in unread_files(migration, own):
        parallel = _parallel_setting(_read_settings(path, migration.program.max_bytes), changed)
        if parallel is not None:
            source, one = changed[parallel.field, parallel.enum]
            what = f"{_describe(parallel)} of {relative_path(path, Path(source.path))} too"
            blockers.append(file_not_given(migration, source, one.node, path, what))
    for other in _without_constructor(migration):
        parallel = _parallel_setting(other, changed)
        if parallel is not None:
            source, one = changed[parallel.field, parallel.enum]
            reason = SETTING_NOT_IMPORTED(
                setting=_describe(parallel), path=relative_path(Path(other.path), Path(source.path))
            )
            blockers.append(Blocked(source, one.node, reason))
    return blockers


def _describe(parallel: Setting) -> str:
    return f"`{parallel.field}` is `{parallel.enum}` in `{parallel.node.name.value}`"


def _without_constructor(migration: Migration) -> Iterator[Source]:
    """The files that were read and do not belong to a program that wraps a model."""
    for group in components(full_program(migration.program)):
        if set(group).isdisjoint(migration.sources) and not any(map(_wraps, group)):
            yield from group


def _wraps(source: Source) -> bool:
    return any(fsdp1_name(full) == FSDP for _, _, full in references(source, PREFIX))


def _read_settings(path: Path, max_bytes: int) -> Source | None:
    """A file that mentions one of the enums and does not wrap a model itself."""
    try:
        data = read_bytes(path)
        if not any(enum.encode() in data for enum in ENUMS):
            return None
        source = read_source(path, max_bytes=max_bytes)
    except Unreadable:
        return None
    return None if _wraps(source) else source


def _parallel_setting(
    source: Source | None, changed: dict[tuple[str, str], tuple[Source, Setting]]
) -> Setting | None:
    if source is None:
        return None
    return next((one for one in _settings(source) if (one.field, one.enum) in changed), None)


def _settings(source: Source) -> Iterator[Setting]:
    for _, node, full in references(source, PREFIX):
        enum = (fsdp1_name(full) or "").partition(".")[0]
        if enum not in ENUMS:
            continue
        statement = None
        for outer in ancestors(source, node):
            if isinstance(outer, cst.FunctionDef):
                break
            if isinstance(outer, cst.Assign | cst.AnnAssign):
                statement = outer
            if isinstance(outer, cst.ClassDef):
                if statement is not None:
                    yield from (Setting(name, enum, outer) for name in _targets(statement))
                break


def _targets(statement: cst.Assign | cst.AnnAssign) -> Iterator[str]:
    targets = (
        [one.target for one in statement.targets]
        if isinstance(statement, cst.Assign)
        else [statement.target]
    )
    yield from (target.value for target in targets if isinstance(target, cst.Name))
