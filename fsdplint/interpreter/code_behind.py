"""The code to which names lead, through the files that they are imported from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import libcst as cst

from fsdplint.interpreter.imports import locate
from fsdplint.interpreter.project import Project
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.named_sites import NamedSites

_Module = tuple[str, str]  # as an import names it, with the path of the file that imports it


class CodeBehind:
    """Finds the sites behind names; reads imported files when a name needs them.

    Args:
        project: its files.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self.named = NamedSites([])
        self._added: set[str] = set()
        self._imports: dict[str, set[_Module]] = {}  # by the names that they bind

    def add(self, source: Source) -> None:
        """Add a file, unless it is known."""
        if source.path in self._added:
            return
        self._added.add(source.path)
        self.named.add(source)
        bindings = bindings_of(source)
        for item in bindings.imports():
            modules = self._imports.setdefault(item.local, set())
            modules.add((item.module, source.path))
            if item.name is not None:  # it may be a module, too
                inner = "" if item.module.endswith(".") else "."
                modules.add((f"{item.module}{inner}{item.name}", source.path))
        for scope in bindings.scopes.values():
            for module in scope.star:
                self._read(module, source.path)

    def behind(self, names: Iterable[str]) -> tuple[set[cst.CSTNode], set[str]]:
        """The sites that names lead to, and all names that are read on the way."""
        names = set(names)
        found, read = self.named.behind(names)
        while self._load(read):
            found, read = self.named.behind(names)
        return found, read

    def _load(self, names: Iterable[str]) -> bool:
        """Read the files from which names are imported; whether one is new."""
        before = len(self._added)
        for name in sorted(self._imports.keys() & names):
            for module, importer in sorted(self._imports.pop(name)):
                self._read(module, importer)
        return len(self._added) > before

    def _read(self, module: str, importer: str) -> None:
        found = locate(self._project, module, importer)
        source = self._project.source(Path(found[1]), imported=True) if found is not None else None
        if source is not None:
            self.add(source)
