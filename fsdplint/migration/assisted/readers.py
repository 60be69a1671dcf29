"""The code that reads what a statement of a module binds."""

from __future__ import annotations

import re
from pathlib import Path

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.assisted.places import Place
from fsdplint.migration.context import nodes
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of


def readers_of(program: Program, place: Place) -> list[cst.CSTNode] | None:
    """The nodes of the file that read the names which a statement binds.

    None if no other file imports this one, if the statement is no simple assignment, or if another
    file reads the names.
    """
    source, names = place.source, _bound(place.statement)
    importers = _importers(program, source)
    if not names or not importers:
        return None
    if any(_takes(names, taken, data) for taken, data in importers):
        return None
    bindings = bindings_of(source)
    return [
        node
        for node in nodes(source)
        if isinstance(node, cst.Name)
        and node.value in names
        and not place.holds(source, node)
        and not _is_label(source, node)
        and bindings.owner(bindings.scope_at(node), node.value) is bindings.module
    ]


def _is_label(source: Source, node: cst.Name) -> bool:
    """Whether a name is that of an attribute or a keyword."""
    parent = source.parent(node)
    if isinstance(parent, cst.Attribute):
        return parent.attr is node
    return isinstance(parent, cst.Arg) and parent.keyword is node


def _bound(statement: cst.CSTNode) -> set[str]:
    if isinstance(statement, cst.AnnAssign):
        targets = [statement.target]
    elif isinstance(statement, cst.Assign):
        targets = [one.target for one in statement.targets]
    else:
        return set()
    if not all(isinstance(one, cst.Name) for one in targets):
        return set()
    return {one.value for one in targets if isinstance(one, cst.Name)}


def _importers(program: Program, source: Source) -> list[tuple[list[tuple[str, str]], bytes]]:
    """What the files that import a file take from it, with their content."""
    whole = full_program(program)
    read = [Path(path) for path in whole.sources if path != source.path]
    found = whole.projects.importing(read, [Path(source.path)])
    return [(list(names), data) for _, _, names, data in found]


def _takes(names: set[str], taken: list[tuple[str, str]], data: bytes) -> bool:
    if taken:
        return any(name in names for name, _ in taken)
    return any(re.search(rb"\b%s\b" % name.encode(), data) for name in names)
