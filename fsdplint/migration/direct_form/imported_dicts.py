"""Dicts of arguments that one file makes, and that others import and spread."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from fsdplint.edits.unused_imports import may_be_module
from fsdplint.migration.analysis.variables import home_of, reads
from fsdplint.migration.direct_form.argument_dicts import Users, spreads_of
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import Imported, bindings_of


@dataclass(frozen=True)
class Importer:
    """A file that imports a dict, only to spread it.

    Attributes:
        item: the name that it imports.
        spreads: the arguments `**name` of calls of FSDP1.
    """

    inlining: Inlining
    item: Imported
    spreads: list[cst.Arg]


@dataclass(frozen=True)
class Importers:
    """Finds the files that import variables of one file.

    Attributes:
        files: all files of the program.
    """

    home: Inlining
    files: Sequence[Inlining]
    users: Users

    def names(self) -> Iterator[cst.Name]:
        """The variables of the file that others import and spread, where they are assigned."""
        own = bindings_of(self.home.source).module.others
        for one in self._others():
            for spread in spreads_of(one.source, self.users.calls):
                assert isinstance(spread.value, cst.Name)
                for item in _items(one.source, self.home.source):
                    if item.local == spread.value.value and item.name is not None:
                        targets = own.get(item.name, ())
                        yield from (node for node in targets if isinstance(node, cst.Name))

    def of(self, name: str) -> list[Importer] | None:
        """The files that import a variable; None if one of them may use it in another way."""
        found = []
        attribute = re.compile(rf"\.\s*{re.escape(name)}\b")
        for one in self._others():
            if name not in one.source.text:
                continue
            stars = bindings_of(one.source).module.star
            if attribute.search(one.source.text) or any(map(self._is_home, stars)):
                return None
            items = [x for x in _items(one.source, self.home.source) if x.name == name]
            if not items:
                continue
            spreads = self._spreads(one, items[0]) if len(items) == 1 else None
            if spreads is None:
                return None
            found.append(Importer(one, items[0], spreads))
        return found

    def _others(self) -> Iterator[Inlining]:
        return (one for one in self.files if one.source is not self.home.source)

    def _is_home(self, module: str) -> bool:
        return may_be_module(module, self.home.source.path)

    def _spreads(self, one: Inlining, item: Imported) -> list[cst.Arg] | None:
        """The arguments `**name` with an imported dict; None if the file uses it in another way."""
        module = bindings_of(one.source).module
        if item.scope is not module or item.local in module.others:
            return None
        found = []
        for use in reads(one.source, one.source.tree, item.local):
            if home_of(one.source, use) is not one.source.tree:
                continue
            parent = one.source.parent(use)
            call = one.source.parent(parent) if parent is not None else None
            if not isinstance(parent, cst.Arg) or parent.star != "**":
                return None
            if call not in self.users.calls:
                return None
            found.append(parent)
        return found


def _items(source: Source, home: Source) -> list[Imported]:
    """The names that a file imports from another file."""
    return [
        item
        for item in bindings_of(source).imports()
        if item.name is not None and may_be_module(item.module, home.path)
    ]
