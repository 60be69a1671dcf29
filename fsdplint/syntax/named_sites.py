"""The sites that a program may come to, judged by the names in its code.

A function may be called wherever its name, or that of its class, is read. So more sites are found
than the program comes to. It costs no execution.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.source.positions import code_children
from fsdplint.source.source import Source, once
from fsdplint.syntax.api_sites import SiteKind, names_of, sites_in
from fsdplint.syntax.qualified_names import walk

_SHARDING_NAMES = re.compile("|".join(names_of(SiteKind.SHARDING)))


@dataclass
class _Code:
    """What functions of one name, or the top level of a file, hold.

    Attributes:
        names: the names and attributes that are read.
        sites: the calls that are sites.
    """

    names: set[str] = field(default_factory=set)
    sites: set[cst.CSTNode] = field(default_factory=set)


TOP = ""  # the name of the top level of the file that is run
IMPORTED = "<module>"  # and of the other files


@once
def _code_by_name(source: Source) -> dict[str, _Code]:
    """What the functions of a file hold, by their names; methods named `__x__` by their classes."""
    found: dict[str, _Code] = {TOP: _Code()}
    sites = {site.node for site in sites_in(source)}
    for node in walk(source, skip_imports=True):
        if isinstance(node, cst.Name | cst.Attribute):
            name = node.value if isinstance(node, cst.Name) else node.attr.value
            found.setdefault(_owner(source, node), _Code()).names.add(name)
        elif node in sites:
            found.setdefault(_owner(source, node), _Code()).sites.add(node)
    return found


def _owner(source: Source, node: cst.CSTNode) -> str:
    """The name by which the code around a node is called; that of its class for `__init__`."""
    function: cst.FunctionDef | None = None
    parent = source.parent(node)
    while parent is not None:
        if isinstance(parent, cst.FunctionDef):
            function = parent
        elif isinstance(parent, cst.ClassDef):
            special = function is None or function.name.value.startswith("__")
            return parent.name.value if special or function is None else function.name.value
        parent = source.parent(parent)
    return TOP if function is None else function.name.value


class NamedSites:
    """The sites that the names in the code of some files lead to.

    Args:
        sources: the files.
        entry: the one that is run, if any: its top level has another name than that of the others.
    """

    def __init__(self, sources: Iterable[Source], entry: Source | None = None) -> None:
        self._by_name: dict[str, list[_Code]] = {}
        self._sites: set[cst.CSTNode] = set()
        for source in sources:
            self.add(source, source is entry)

    def add(self, source: Source, is_entry: bool = False) -> None:
        """Add a file."""
        for name, code in _code_by_name(source).items():
            key = name if name != TOP or is_entry else IMPORTED
            self._by_name.setdefault(key, []).append(code)
            self._sites |= code.sites

    def within(self, node: cst.CSTNode) -> set[cst.CSTNode]:
        """The sites in code itself."""
        return _within(node, self._sites)

    def behind(self, names: Iterable[str]) -> tuple[set[cst.CSTNode], set[str]]:
        """The sites that names lead to, and all names that are read on the way."""
        found: set[cst.CSTNode] = set()
        read = set(names)
        todo, seen = list(read), set(read)
        while todo:
            for code in self._by_name.get(todo.pop(), ()):
                found |= code.sites
                read |= code.names
                new = (code.names & self._by_name.keys()) - seen
                seen |= new
                todo += new
        return found, read


def reachable_sites(entry: Source, sources: Iterable[Source]) -> set[cst.CSTNode]:
    """The sites that the names in a program lead to.

    Args:
        entry: the file that is run.
        sources: the files that it executes.
    """
    return NamedSites(sources, entry).behind([TOP])[0]


def has_site(source: Source, node: cst.CSTNode) -> bool:
    """Whether a site is in a part of a file."""
    return bool(_within(node, {site.node for site in sites_in(source)}))


def _within(node: cst.CSTNode, sites: Set[cst.CSTNode]) -> set[cst.CSTNode]:
    found = {node} & sites
    for child in code_children(node):
        found |= _within(child, sites)
    return found


def lead_to_sharding(names: Iterable[str], sources: Collection[Source]) -> bool:
    """Whether names, or the top levels of files, lead to a call that shards a model.

    Args:
        names: those by which code is called.
        sources: the files that it executes.
    """
    sharding = {node for source in sources for node in _sharding_sites(source)}
    if not sharding:
        return False
    return not sharding.isdisjoint(NamedSites(sources).behind([IMPORTED, *names])[0])


@once
def _sharding_sites(source: Source) -> frozenset[cst.CSTNode]:
    if not may_shard(source.text):
        return frozenset()  # to find the sites of a file takes much longer
    return frozenset(site.node for site in sites_in(source) if site.kind is SiteKind.SHARDING)


def may_shard(text: str) -> bool:
    """Whether a text names a call that shards a model."""
    return _SHARDING_NAMES.search(text) is not None


def names_in(node: cst.CSTNode) -> set[str]:
    """The names and attributes that code reads."""
    found = {node.value} if isinstance(node, cst.Name) else set[str]()
    for child in code_children(node):
        found |= names_in(child)
    return found
