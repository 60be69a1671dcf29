"""What the names at the top level of a file stand for, read off its statements alone.

Function bodies are not visited, so that the cost is small for a large file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.source.positions import code_children
from fsdplint.source.source import Source, once
from fsdplint.syntax.dotted import dotted_name

_GLOBAL = re.compile(r"^[ \t]+global[ \t]+(.+)", re.MULTILINE)
_IDENTIFIER = re.compile(r"\w+")


@dataclass(frozen=True)
class ImportedName:
    """A name that an import binds.

    module: the dotted module, with the dots of a relative import. name: None for `import module`.
    """

    module: str
    name: str | None = None


Meaning = ImportedName | cst.ClassDef | cst.FunctionDef | cst.CSTNode


@dataclass
class ModuleNames:
    """The names that a file binds.

    Attributes:
        meanings: by name what binds it: an import, a definition, or another node.
        stars: whether a `from x import *` may bind further names.
    """

    meanings: dict[str, list[Meaning]] = field(default_factory=dict)
    stars: bool = False

    def meaning(self, name: str) -> Meaning | None:
        """The only thing that a name ever stands for; None if there are none or several."""
        found = self.meanings.get(name, ())
        return found[0] if len(found) == 1 else None

    def binds(self, name: str) -> bool:
        return name in self.meanings or self.stars

    def add(self, name: str, meaning: Meaning) -> None:
        known = self.meanings.setdefault(name, [])
        if meaning not in known:  # `import a.b` and `import a.c` both bind the module `a`
            known.append(meaning)


@once
def module_names(source: Source) -> ModuleNames:
    """The names at the top level of a source."""
    names = ModuleNames()
    stack: list[cst.CSTNode] = list(source.tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, cst.Import | cst.ImportFrom):
            _add_imports(names, node)
        elif isinstance(node, cst.FunctionDef | cst.ClassDef):
            names.add(node.name.value, node)
        else:
            for name in _bound(node):
                names.add(name, node)
            if not isinstance(node, cst.Lambda):
                stack += code_children(node)
    for match in _GLOBAL.finditer(source.text):
        for name in _IDENTIFIER.findall(match.group(1)):
            names.add(name, source.tree)  # a function may bind it to anything
    return names


def _add_imports(names: ModuleNames, node: cst.Import | cst.ImportFrom) -> None:
    if isinstance(node.names, cst.ImportStar):
        names.stars = True
        return
    for alias in node.names:
        full = alias.evaluated_name
        if isinstance(node, cst.ImportFrom):
            base = "." * len(node.relative) + (dotted_name(node.module) if node.module else "")
            names.add(alias.evaluated_alias or full, ImportedName(base, full))
        elif alias.asname is not None:
            names.add(alias.evaluated_alias or full, ImportedName(full))
        else:
            head = full.partition(".")[0]
            names.add(head, ImportedName(head))


def _bound(node: cst.CSTNode) -> Iterator[str]:
    """The names that one node, without those in it, binds or unbinds."""
    targets: list[cst.CSTNode] = []
    if isinstance(
        node, cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.For | cst.NamedExpr | cst.Del
    ):
        targets = [node.target]
    elif isinstance(node, cst.AsName | cst.MatchAs | cst.MatchStar | cst.TypeAlias):
        targets = [node.name] if node.name is not None else []
    elif isinstance(node, cst.MatchMapping):
        targets = [node.rest] if node.rest is not None else []
    while targets:
        target = targets.pop()
        if isinstance(target, cst.Name):
            yield target.value
        elif isinstance(target, cst.Tuple | cst.List):
            targets += [element.value for element in target.elements]
        elif isinstance(target, cst.StarredElement):
            targets.append(target.value)
