"""The sites that a program may come to, judged by the names in its code.

A function may be called wherever its name, or that of its class, is read. So more sites are found
than the program comes to. It costs no execution.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.source.source import Source, once
from fsdplint.syntax.api_sites import sites_in
from fsdplint.syntax.qualified_names import walk


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


def reachable_sites(entry: Source, sources: Iterable[Source]) -> set[cst.CSTNode]:
    """The sites that the names in a program lead to.

    Args:
        entry: the file that is run.
        sources: the files that it executes.
    """
    by_name: dict[str, list[_Code]] = {}
    for source in sources:
        for name, code in _code_by_name(source).items():
            by_name.setdefault(name if name != TOP or source is entry else "<module>", []).append(
                code
            )
    found: set[cst.CSTNode] = set()
    todo, seen = [TOP], {TOP}
    while todo:
        for code in by_name.get(todo.pop(), ()):
            found |= code.sites
            new = (code.names & by_name.keys()) - seen
            seen |= new
            todo += new
    return found
