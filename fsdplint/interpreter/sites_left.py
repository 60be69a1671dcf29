"""The sites that no run has reached yet and to which the names in code lead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import libcst as cst

from fsdplint.interpreter.coverage import Coverage
from fsdplint.interpreter.imports import absolute_name, locate
from fsdplint.interpreter.project import Project
from fsdplint.interpreter.run import Run
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.named_sites import NamedSites, names_in
from fsdplint.syntax.qualified_names import walk

_Module = tuple[str, str]  # as an import names it, with the path of the file that imports it


class SitesLeft:
    """Knows the files that the runs of an entry executed, and reads those that these import.

    Args:
        project: its files.
        coverage: what all runs executed so far.
    """

    def __init__(self, project: Project, coverage: Coverage) -> None:
        self._project, self._coverage = project, coverage
        self._executed: dict[str, Source] = {}
        self._named = NamedSites([])
        self._added: set[str] = set()
        self._imports: dict[str, set[_Module]] = {}  # by the names that they bind

    def note(self, run: Run) -> None:
        """Note the files that a run executed."""
        for scope in run.module_scopes.values():
            self._executed.setdefault(scope.source.path, scope.source)

    def are_behind(self, code: Sequence[cst.CSTNode]) -> bool:
        """Whether code has a site that no run has reached, or names in it lead to one."""
        for source in self._executed.values():
            self._add(source)
        within = {site for node in code for site in self._named.within(node)}
        if self._coverage.count_left(within):
            return True
        names = {name for node in code for name in names_in(node)}
        found, read = self._named.behind(names)
        while self._load(read):
            found, read = self._named.behind(names)
        return self._coverage.count_left(found) > 0

    def _add(self, source: Source) -> None:
        if source.path in self._added:
            return
        self._added.add(source.path)
        self._named.add(source)
        for node in walk(source):
            if isinstance(node, cst.Import | cst.ImportFrom):
                for name, module in _imported(node):
                    self._imports.setdefault(name, set()).add((module, source.path))

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
                    self._add(source)
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
