"""Names of libraries that a file of the project imports from another one: `from setup import FSDP`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

import libcst as cst

from fsdplint.edits.unused_imports import may_be_module
from fsdplint.interpreter import Program
from fsdplint.migration.analysis.variables import reads
from fsdplint.migration.names import fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import Imported, bindings_of
from fsdplint.syntax.qualified_names import canonical

MAX_FILES = 3  # that pass a name on to one another


@dataclass(frozen=True)
class PassedName:
    """A name of a library that a file imports from another file of the project.

    Attributes:
        source: the file that uses the name.
        local: the name there.
        module: where the file imports it from.
        full: its dotted name in the library.
        uses: the reads of it.
        origin: the file that imports it from the library.
        spelling: how the import there is referred to.
    """

    source: Source
    local: str
    module: str
    full: str
    uses: list[cst.Name]
    origin: Source
    spelling: str

    @property
    def is_fsdp1(self) -> bool:
        return fsdp1_name(self.full) is not None

    def is_visible(self, node: cst.CSTNode) -> bool:
        """Whether the name has this meaning at a node of the file."""
        bindings = bindings_of(self.source)
        owner = bindings.owner(bindings.scope_at(node), self.local)
        return owner is None or (owner is bindings.module and self.local not in owner.others)


def passed_names(program: Program) -> list[PassedName]:
    """The names of libraries that files of a program import from one another (cached)."""
    if "passed names" not in program.cache:
        program.cache["passed names"] = list(_passed_names(program))
    result: list[PassedName] = program.cache["passed names"]
    return result


def _passed_names(program: Program) -> Iterator[PassedName]:
    for source in program.sources.values():
        bindings = bindings_of(source)
        for item in bindings.imports():
            found = _origin(program, source, item.module, item.name)
            if found is not None:
                yield _passed_name(source, item.scope.node, item.local, item.module, *found)
        for module in bindings.module.star:
            for local, origin, item in _star_imports(program, source, module):
                if not bindings.module.binds(local):
                    yield _passed_name(source, source.tree, local, module, origin, item)


def _passed_name(
    source: Source, home: cst.CSTNode, local: str, module: str, origin: Source, item: Imported
) -> PassedName:
    uses = reads(source, home, local)
    full = canonical(item.full)
    return PassedName(source, local, module, full, uses, origin, item.spelling)


def _origin(
    program: Program, source: Source, module: str, name: str | None, depth: int = 0
) -> tuple[Source, Imported] | None:
    """The file and the import that give a module of the project a name of a library."""
    other = file_of(program, source, module) if name is not None else None
    if other is None or depth > MAX_FILES:
        return None
    scope = bindings_of(other).module
    found = [item for item in scope.imports if item.local == name]
    if len(found) != 1 or name in scope.others:
        return None
    (item,) = found
    if file_of(program, other, item.module) is None:
        return (other, item) if not item.module.startswith(".") else None
    return _origin(program, other, item.module, item.name, depth + 1)


def _star_imports(
    program: Program, source: Source, module: str
) -> Iterator[tuple[str, Source, Imported]]:
    """The names of libraries that `import *` of a module of the project gives."""
    other = file_of(program, source, module)
    bindings = bindings_of(other) if other is not None else None
    for item in bindings.module.imports if bindings is not None else ():
        if bindings is not None and bindings.exported and item.local not in bindings.exported:
            continue
        found = _origin(program, source, module, item.local)
        if found is not None:
            yield item.local, *found


def file_of(program: Program, source: Source, module: str) -> Source | None:
    """The only file of the program that a module's name may mean."""
    if not module.strip("."):
        return None
    found = [
        other
        for path, other in _by_stem(program).get(module.rpartition(".")[2], ())
        if other is not source and may_be_module(module, path)
    ]
    return found[0] if len(found) == 1 else None


def _by_stem(program: Program) -> dict[str, list[tuple[str, Source]]]:
    """The files of a program with their paths, by their names without a suffix (cached)."""
    if "files by stem" not in program.cache:
        files: dict[str, list[tuple[str, Source]]] = {}
        for path, source in program.sources.items():
            files.setdefault(PurePath(path).stem, []).append((path, source))
        program.cache["files by stem"] = files
    result: dict[str, list[tuple[str, Source]]] = program.cache["files by stem"]
    return result
