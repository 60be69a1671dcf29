"""The sites that a program may come to, judged by the names in its code.

A function may be called wherever its name, or that of its class, is read. So more sites are found
than the program comes to. It costs no execution.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import libcst as cst

from fsdplint.source.positions import code_children
from fsdplint.source.source import Source, once
from fsdplint.syntax.api_sites import SiteKind, names_of, sites_in
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.qualified_names import walk

_SHARDING_NAMES = re.compile("|".join(names_of(SiteKind.SHARDING)))


def is_main_test(test: cst.BaseExpression) -> bool:
    """Whether an expression is `__name__ == "__main__"`."""
    return (
        isinstance(test, cst.Comparison)
        and isinstance(test.left, cst.Name)
        and test.left.value == "__name__"
        and isinstance(test.comparisons[0].operator, cst.Equal)
    )


@dataclass
class _Code:
    """What functions of one name, or the top level of a file, hold.

    Attributes:
        names: the names and attributes that are read.
        sites: the calls that are sites, with what they do.
    """

    names: set[str] = field(default_factory=set)
    sites: dict[cst.CSTNode, SiteKind] = field(default_factory=dict)


TOP = ""  # the name of the top level of the file that is run
IMPORTED = "<module>"  # and of the other files
_MAIN = "<main>"  # the code that is executed if the file is run, and not if it is imported


@once
def _code_by_name(source: Source) -> dict[str, _Code]:
    """What the functions of a file hold, by their names; methods named `__x__` by their classes."""
    found: dict[str, _Code] = {TOP: _Code()}
    sites: dict[cst.CSTNode, SiteKind] = {site.node: site.kind for site in sites_in(source)}
    around = _Around(source)
    for node in walk(source, skip_imports=True):
        if isinstance(node, cst.Name | cst.Attribute):
            names = found.setdefault(around.owner(node), _Code()).names
            names.add(node.value if isinstance(node, cst.Name) else node.attr.value)
            names.update(filter(None, dotted_name(node).split(".")))  # of modules and properties
        elif node in sites:
            found.setdefault(around.owner(node), _Code()).sites[node] = sites[node]
    return found


class _Place(NamedTuple):
    """Where code is: its innermost class, the outermost function in it, and the top level."""

    owner: str | None = None
    function: str | None = None
    top: str = TOP

    def inside(self, node: cst.CSTNode) -> _Place:
        """The place of what a node holds that is at this place."""
        if isinstance(node, cst.FunctionDef):
            return self if self.function is not None else self._replace(function=node.name.value)
        if isinstance(node, cst.ClassDef):
            return self._replace(owner=node.name.value, function=None)
        if isinstance(node, cst.If) and is_main_test(node.test):
            return self._replace(top=_MAIN)
        return self


class _Around:
    """Finds what is around the nodes of a file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known: dict[cst.CSTNode, _Place] = {}

    def owner(self, node: cst.CSTNode) -> str:
        """The name by which the code around a node is called; that of its class for `__init__`."""
        owner, function, top = self._place(node)
        if owner is not None:
            return owner if function is None or function.startswith("__") else function
        return top if function is None else function

    def _place(self, node: cst.CSTNode) -> _Place:
        unknown: list[cst.CSTNode] = []
        parent = self._source.parent(node)
        while parent is not None and parent not in self._known:
            unknown.append(parent)
            parent = self._source.parent(parent)
        place = _Place() if parent is None else self._known[parent]
        for one in reversed(unknown):
            place = self._known[one] = place.inside(one)
        return place


def _key(name: str, is_entry: bool) -> str | None:
    """The name by which code of a file is found; None for what is not executed."""
    if name in (TOP, _MAIN):
        return TOP if is_entry else IMPORTED if name == TOP else None
    return name


class NamedSites:
    """The sites that the names in the code of some files lead to.

    Args:
        sources: the files.
        entry: the one that is run, if any: its top level has another name than that of the others.
    """

    def __init__(self, sources: Iterable[Source], entry: Source | None = None) -> None:
        self._by_name: dict[str, list[_Code]] = {}
        self._kinds: dict[cst.CSTNode, SiteKind] = {}
        # What the top levels of the files that are not run lead to; None: not worked out.
        self._behind_imports: tuple[set[cst.CSTNode], set[str], set[str]] | None = None
        for source in sources:
            self.add(source, source is entry)

    def add(self, source: Source, is_entry: bool = False) -> None:
        """Add a file."""
        self._behind_imports = None
        for name, code in _code_by_name(source).items():
            key = _key(name, is_entry)
            if key is not None:
                self._by_name.setdefault(key, []).append(code)
            self._kinds |= code.sites

    def within(self, node: cst.CSTNode) -> set[cst.CSTNode]:
        """The sites in code itself."""
        return _sites_within(node, self._kinds.keys())

    def kinds_of(self, sites: Iterable[cst.CSTNode]) -> set[SiteKind]:
        """What some of the sites do."""
        return {self._kinds[site] for site in sites}

    def behind(self, names: Iterable[str]) -> tuple[set[cst.CSTNode], set[str]]:
        """The sites that names lead to, and all names that are read on the way."""
        names = set(names)
        if IMPORTED not in names:
            return self._follow(names, set(), set(), set())[:2]
        if self._behind_imports is None:
            self._behind_imports = self._follow({IMPORTED}, set(), set(), set())
        found, read, seen = self._behind_imports
        return self._follow(names, set(found), set(read), set(seen))[:2]

    def _follow(
        self, names: set[str], found: set[cst.CSTNode], read: set[str], seen: set[str]
    ) -> tuple[set[cst.CSTNode], set[str], set[str]]:
        """Add the sites behind names, the names that are read on the way, and those followed."""
        todo = list(names - seen)
        read |= names
        seen |= names
        while todo:
            for code in self._by_name.get(todo.pop(), ()):
                found |= code.sites.keys()
                read |= code.names
                new = (code.names & self._by_name.keys()) - seen
                seen |= new
                todo += new
        return found, read, seen


def reachable_sites(entry: Source, sources: Iterable[Source]) -> set[cst.CSTNode]:
    """The sites that the names in a program lead to.

    Args:
        entry: the file that is run.
        sources: the files that it executes.
    """
    return NamedSites(sources, entry).behind([TOP])[0]


def _sites_within(node: cst.CSTNode, sites: Set[cst.CSTNode]) -> set[cst.CSTNode]:
    found = {node} & sites
    for child in code_children(node):
        found |= _sites_within(child, sites)
    return found


def lead_to_sharding(
    names: Iterable[str], sources: Collection[Source], entry: Source | None = None
) -> bool:
    """Whether names, or the top levels of files, lead to a call that shards a model.

    Args:
        names: those by which code is called.
        sources: the files that it executes.
        entry: the one that is run, if any.
    """
    if not any(may_shard(source.text) for source in sources):
        return False  # to find the sites of a file takes much longer
    named = NamedSites(sources, entry)
    return SiteKind.SHARDING in named.kinds_of(named.behind([IMPORTED, *names])[0])


def may_shard(text: str) -> bool:
    """Whether a text names a call that shards a model."""
    return _SHARDING_NAMES.search(text) is not None


def names_in(node: cst.CSTNode) -> set[str]:
    """The names and attributes that code reads."""
    found = {node.value} if isinstance(node, cst.Name) else set[str]()
    for child in code_children(node):
        found |= names_in(child)
    return found
