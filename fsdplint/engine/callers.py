"""The files that may call functions with sites that no program of a group reaches."""

from __future__ import annotations

import os
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from fsdplint.discovery.byte_scanner import Statement, reachable_statements, statements
from fsdplint.discovery.importers import ProjectIndex
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import Program
from fsdplint.interpreter.gaps import Gap
from fsdplint.source.source import Source

_DEFINITIONS = (cst.FunctionDef, cst.ClassDef)


@dataclass(frozen=True)
class Callers:
    """Files that import those of a group.

    Attributes:
        files: those that may call the functions, directly or indirectly.
        searched: those whose content decided that.
    """

    files: tuple[Path, ...] = ()
    searched: tuple[Path, ...] = ()


def callers_of_unreached(workspace: Workspace, program: Program) -> Callers:
    """The files that use what leads to sites of which no call was found.

    Files that the group only imports are left to a check that names them.
    """
    assert workspace.projects is not None
    gaps = {Gap.UNCALLED, Gap.UNREACHED_CALL}
    given = set(map(os.path.realpath, workspace.paths))
    names: dict[str, set[str]] = {}
    for one in program.coverage:
        path = one.source.path
        if one.gap in gaps and os.path.realpath(path) in given:
            names.setdefault(path, set()).update(_definitions_around(one.source, one.site.node))
    if not names:
        return Callers()
    return _follow(
        workspace.projects,
        {
            Path(path): one | _users_in(program.sources[path].text.encode("utf-8", "replace"), one)
            for path, one in names.items()
        },
    )


def _follow(projects: ProjectIndex, names: dict[Path, set[str]]) -> Callers:
    """The files that may call some functions.

    names: for files, what leads to the functions.
    """
    searched = projects.importers(sorted(names))
    calling: dict[Path, set[str]] = {}
    todo = sorted(names)
    while todo:
        target = todo.pop()
        wanted = {*names.get(target, ()), *calling.get(target, ())}
        for path, _, imported, data in projects.importing(searched, [target]):
            local = {alias for name, alias in imported if name in wanted} if imported else wanted
            found = _users_in(data, local)
            if found and not found <= calling.get(path, set()):
                calling.setdefault(path, set()).update(found)
                todo.append(path)
    return Callers(tuple(calling), tuple(searched))


def _users_in(data: bytes, names: Set[str]) -> set[str]:
    """Those of some names that a file uses, and the names of its own that lead to them."""
    known = set(names)
    users, _ = reachable_statements(
        statements(data),
        known,
        lambda one: not known.isdisjoint(_last_names(one)),
        lambda one: one.bound,
    )
    bound = set().union(*(one.bound for one in users))
    return bound.union(*(names & _last_names(one) for one in users))


def _last_names(statement: Statement) -> set[str]:
    """The names in a statement, without what they are attributes of."""
    return {name.rpartition(".")[2] for name in statement.used_names}


def _definitions_around(source: Source, node: cst.CSTNode) -> set[str]:
    """The names of the functions and classes around a node; no special methods."""
    names: set[str] = set()
    parent = source.parent(node)
    while parent is not None:
        if isinstance(parent, _DEFINITIONS):
            names.add(parent.name.value)
        parent = source.parent(parent)
    return {name for name in names if not name.startswith("__")}
