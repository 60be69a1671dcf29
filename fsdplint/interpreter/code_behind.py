"""The code to which names lead, through the files that they are imported from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from pathlib import Path

import libcst as cst

from fsdplint.interpreter.imports import absolute_name, locate
from fsdplint.interpreter.project import Project
from fsdplint.source.source import Source
from fsdplint.syntax.api_sites import SiteKind, sites_in
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.named_sites import NamedSites
from fsdplint.syntax.qualified_names import walk

_Module = tuple[str, str]  # as an import names it, with the path of the file that imports it


class CodeBehind:
    """Finds the sites behind names; reads imported files when a name needs them.

    Args:
        project: its files.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self.named = NamedSites([])
        self._added: dict[str, Source] = {}
        self._imports: dict[str, set[_Module]] = {}  # by the names that they bind

    def add(self, source: Source) -> None:
        """Add a file, unless it is known."""
        if source.path in self._added:
            return
        self._added[source.path] = source
        self.named.add(source)
        for node in walk(source):
            if isinstance(node, cst.Import | cst.ImportFrom):
                for name, module in _imported(node):
                    self._imports.setdefault(name, set()).add((module, source.path))

    def behind(self, names: Iterable[str]) -> tuple[set[cst.CSTNode], set[str]]:
        """The sites that names lead to, and all names that are read on the way."""
        names = set(names)
        found, read = self.named.behind(names)
        while self._load(read):
            found, read = self.named.behind(names)
        return found, read

    def sites_of(self, kinds: Set[SiteKind]) -> set[cst.CSTNode]:
        """The sites of some kinds in all files that were read."""
        sources = self._added.values()
        return {site.node for one in sources for site in sites_in(one) if site.kind in kinds}

    def _load(self, names: Iterable[str]) -> bool:
        """Read the files from which names are imported; whether one is new."""
        before = len(self._added)
        for name in sorted(self._imports.keys() & names):
            for module, importer in sorted(self._imports.pop(name)):
                found = locate(self._project, module, importer)
                if found is None:
                    continue
                source = self._project.source(Path(found[1]), imported=True)
                if source is not None:
                    self.add(source)
        return len(self._added) > before


def _imported(node: cst.Import | cst.ImportFrom) -> Iterator[tuple[str, str]]:
    """The names that an import binds, each with the modules that it may come from."""
    if isinstance(node.names, cst.ImportStar):
        return
    for one in node.names:
        name = one.evaluated_alias or one.evaluated_name
        if isinstance(node, cst.Import):
            yield name.partition(".")[0], dotted_name(one.name)
            continue
        module = absolute_name(node)
        yield name, module
        yield name, f"{module}{'.' if module.strip('.') else ''}{one.evaluated_name}"
