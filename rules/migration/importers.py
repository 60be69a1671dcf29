"""Files of the project that are not given and import what the migration changes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import libcst as cst

from fsdplint.files import project_root
from fsdplint.program import Program
from fsdplint.program.source import Source
from fsdplint.rule import Edit
from fsdplint.rules.migration.components import Part
from fsdplint.rules.migration.context import Blocked, Migration


def check(migration: Migration, edits: Iterable[Edit]) -> list[Blocked]:
    """The blockers: a file that is not given would have to change with what it imports."""
    changed: dict[str, list[Edit]] = {}
    for edit in edits:
        changed.setdefault(edit.path, []).append(edit)
    exposed: dict[Path, tuple[Source, dict[str, cst.CSTNode]]] = {}
    for source in dict.fromkeys([*migration.sources, *migration.unread.values()]):
        found = _exposed(migration, source, changed.get(source.path, []))
        if found:
            exposed[Path(source.path)] = source, found
    if not exposed:
        return []
    blockers: dict[tuple[Path, Path], Blocked] = {}
    for importer, target, names, data in whole(migration).projects.importing(
        others(migration, exposed), exposed
    ):
        source, found = exposed[target]
        for name, node in found.items():
            mentioned = name in names if names else re.search(rb"\b%s\b" % name.encode(), data)
            if mentioned:
                what = f"`{name}` is also imported by {shown(importer, target)}"
                blockers.setdefault(
                    (importer, target), not_given(migration, source, node, importer, what)
                )
    return list(blockers.values())


def others(migration: Migration, paths: Iterable[Path]) -> Iterator[Path]:
    """The files of the projects of some files that were not read."""
    program = whole(migration)
    given = {os.path.realpath(source.path) for source in program.sources.values()}
    for root in {project_root(path): path for path in paths}.values():
        for path in program.projects.files(root, excluded=False):
            if os.path.realpath(path) not in given:
                yield path


def whole(migration: Migration) -> Program:
    """The program that the migration's files are a part of."""
    program = migration.program
    return program.whole if isinstance(program, Part) else program


def not_given(
    migration: Migration, source: Source, node: cst.CSTNode, path: Path, what: str
) -> Blocked:
    """The blocker where another file, which was not read, would have to change with a node."""
    migration.program.wanted.add(path)
    return Blocked(source, node, f"{what}: name that file as well")


def shown(importer: Path, target: Path) -> str:
    """A file's path as seen from the folder of another, where it lies below that."""
    try:
        return str(importer.absolute().relative_to(target.absolute().parent))
    except ValueError:
        return str(importer)


def _exposed(migration: Migration, source: Source, edits: list[Edit]) -> dict[str, cst.CSTNode]:
    """The names of a file's top level that mean something else after the migration.

    A function counts if it returns something or gets a model that FSDP1 wraps, or if nothing was said
    against it because nobody here calls it.
    """
    spans = [(edit.start, edit.end) for edit in edits]
    touched: dict[str, cst.CSTNode] = {}
    definitions = list(_definitions(source.tree))
    for name, node in definitions:
        start, end = source.span(node)
        changed = any(_meets(start, end, left, right) for left, right in spans)
        if changed or node in migration.unread:
            touched[name] = node
    while True:
        more = [
            (name, node)
            for name, node in definitions
            if name not in touched
            and any(isinstance(x, cst.Name) and x.value in touched for x in source.descend(node))
        ]
        if not more:
            break
        touched.update(more)
    return {
        name: node
        for name, node in touched.items()
        if node in migration.unread or _matters(migration, source, node)
    }


def _meets(start: int, end: int, left: int, right: int) -> bool:
    """Whether an edit is within a definition, or takes it away."""
    return (start <= left and right <= end) or (left <= start and end <= right)


def _definitions(tree: cst.Module) -> Iterator[tuple[str, cst.CSTNode]]:
    """Functions, classes and variables of the top level, in `if` and `try` too."""
    stack: list[cst.CSTNode] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            yield node.name.value, node
        elif isinstance(node, cst.Assign):
            for target in node.targets:
                if isinstance(target.target, cst.Name):
                    yield target.target.value, node
        elif not isinstance(node, cst.BaseExpression):
            stack.extend(node.children)


def _matters(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.FunctionDef):
        return True
    parameters = {
        part.name.value for part in source.descend(node.params) if isinstance(part, cst.Param)
    }
    for part in source.descend(node.body):
        if isinstance(part, cst.Return) and part.value is not None:
            if not (isinstance(part.value, cst.Name) and part.value.value == "None"):
                return True
        if isinstance(part, cst.Name) and part.value in parameters and migration.wrapped(part):
            return True
    return False
