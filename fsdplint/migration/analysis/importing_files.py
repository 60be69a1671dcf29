"""Files of the project that are not given and import names that the migration changes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import libcst as cst

from fsdplint.diagnostics.finding import Edit
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.program import FILE_NOT_GIVEN
from fsdplint.migration.context import Migration
from fsdplint.source.folders import project_root
from fsdplint.source.source import Source

ChangedNames = dict[str, tuple[Source, cst.CSTNode]]  # the names, and what defines them


def check(migration: Migration, edits: Iterable[Edit]) -> list[Blocked]:
    """The blockers of files that are not given and would have to change with the names they import."""
    changed: dict[str, list[Edit]] = {}
    for edit in edits:
        changed.setdefault(edit.path, []).append(edit)
    changed_names: dict[Path, ChangedNames] = {}
    for source in dict.fromkeys([*migration.sources, *migration.blocking_if_called.values()]):
        found = _changed_names(migration, source, changed.get(source.path, []))
        if found:
            changed_names[Path(source.path)] = {
                name: (source, node) for name, node in found.items()
            }
    if not changed_names:
        return []
    _pass_on(migration, changed_names)
    blockers: dict[tuple[Path, Path], Blocked] = {}
    for importer, target, names, data in full_program(migration.program).projects.importing(
        unread_files(migration, changed_names), changed_names
    ):
        for name, (source, node) in changed_names[target].items():
            if _takes(name, names, data):
                what = f"`{name}` is also imported by {relative_path(importer, target)}"
                blockers.setdefault(
                    (importer, target), file_not_given(migration, source, node, importer, what)
                )
    return list(blockers.values())


def _takes(name: str, names: Sequence[tuple[str, str]], data: bytes) -> bool:
    """Whether a file that imports some names, or all of a module (no names), uses a name."""
    if names:
        return any(name == one for one, _ in names)
    return re.search(rb"\b%s\b" % name.encode(), data) is not None


def _pass_on(migration: Migration, changed_names: dict[Path, ChangedNames]) -> None:
    """Add the files that were read and re-export the names, such as a package's `__init__`."""
    program = full_program(migration.program)
    read = [Path(path) for path in program.sources]
    todo = list(changed_names)
    while todo:
        for importer, target, names, _ in program.projects.importing(read, [todo.pop()]):
            found = changed_names[target]
            passed = {
                alias: found[name]
                for name, alias in names or [(name, name) for name in found]
                if name in found
            }
            known = changed_names.setdefault(importer, {})
            new = {alias: one for alias, one in passed.items() if alias not in known}
            if new:
                known.update(new)
                todo.append(importer)


def unread_files(migration: Migration, paths: Iterable[Path]) -> Iterator[Path]:
    """The files that were not read, in the projects of some files."""
    program = full_program(migration.program)
    given = {os.path.realpath(source.path) for source in program.sources.values()}
    for root in {project_root(path): path for path in paths}.values():
        for path in program.projects.files(root, excluded=False):
            if os.path.realpath(path) not in given:
                yield path


def file_not_given(
    migration: Migration, source: Source, node: cst.CSTNode, path: Path, what: str
) -> Blocked:
    """The blocker of a node if a file that was not read would have to change with it."""
    migration.program.files_to_fix.add(path)
    return Blocked(source, node, FILE_NOT_GIVEN(what=what))


def relative_path(importer: Path, target: Path) -> str:
    """A file's path relative to the folder of another file, if it is below that folder."""
    try:
        return str(importer.absolute().relative_to(target.absolute().parent))
    except ValueError:
        return str(importer)


def _changed_names(
    migration: Migration, source: Source, edits: list[Edit]
) -> dict[str, cst.CSTNode]:
    """The names of a file's top level whose meaning the migration changes.

    A function counts if it returns a value, if it gets a model that FSDP1 wraps, or if it would
    block if something called it.
    """
    spans = [(edit.start, edit.end) for edit in edits]
    touched: dict[str, cst.CSTNode] = {}
    definitions = list(_definitions(source.tree))
    for name, node in definitions:
        start, end = source.span(node)
        changed = any(_overlaps(start, end, left, right) for left, right in spans)
        if changed or node in migration.blocking_if_called:
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
        if node in migration.blocking_if_called or _matters(migration, source, node)
    }


def _overlaps(start: int, end: int, left: int, right: int) -> bool:
    """Whether an edit is inside of a definition, or removes it."""
    return (start <= left and right <= end) or (left <= start and end <= right)


def _definitions(tree: cst.Module) -> Iterator[tuple[str, cst.CSTNode]]:
    """Functions, classes and variables of the top level, including those in `if` and `try`."""
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
        if isinstance(part, cst.Name) and part.value in parameters and migration.wrapping_of(part):
            return True
    return False
