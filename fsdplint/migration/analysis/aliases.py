"""Variables that are another name of something of FSDP1: `Wrapper = FullyShardedDataParallel`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.migration.analysis.variables import definitions, home_of, reads
from fsdplint.migration.names import fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.qualified_names import canonical, symbols_in, walk


@dataclass(frozen=True)
class Alias:
    """A variable with another name for something of FSDP1.

    Attributes:
        source: its file.
        name: the variable.
        statement: the only assignment of it.
        uses: the references through it, with the canonical dotted name of each.
    """

    source: Source
    name: str
    statement: cst.Assign
    uses: dict[cst.CSTNode, str]


def aliases_in(source: Source) -> Iterator[Alias]:
    """The variables of a file that are only another name of something of FSDP1."""
    symbols = symbols_in(source)
    for node in walk(source, skip_imports=True):
        if not isinstance(node, cst.Assign) or len(node.targets) != 1:
            continue
        target, full = node.targets[0].target, _canonical_name(node.value, symbols)
        name = fsdp1_name(full)
        if not isinstance(target, cst.Name) or name is None or "." in name:
            continue  # a member of a class may be a value: an enum's
        home, assigned = home_of(source, target), definitions(source, target)
        if home is None or assigned is None or len(assigned) != 1:
            continue
        uses = {}
        for read in reads(source, home, target.value):
            used, rest = whole_name(source, read)
            uses[used] = canonical(f"{full}{rest}")
        if uses:
            yield Alias(source, target.value, node, uses)


def is_read_elsewhere(program: Program, alias: Alias) -> bool:
    """Whether another file has the name of the variable, which it may import."""
    word = re.compile(rf"\b{re.escape(alias.name)}\b")
    others = [source for source in program.sources.values() if source is not alias.source]
    return any(word.search(source.text) for source in others)


def _canonical_name(node: cst.BaseExpression, symbols: dict[cst.CSTNode, str]) -> str:
    """The canonical name that an expression stands for: a name, `getattr(module, "name")`, ..."""
    if node in symbols:
        return symbols[node]
    if isinstance(node, cst.Attribute):
        module = _imported_module(node.value, symbols)
        return canonical(f"{module}.{node.attr.value}") if module else ""
    if not isinstance(node, cst.Call) or not is_constant(node.func, "getattr"):
        return ""
    if len(node.args) != 2 or any(arg.star or arg.keyword for arg in node.args):
        return ""
    owner, name = symbols.get(node.args[0].value, ""), node.args[1].value
    text = name.evaluated_value if isinstance(name, cst.SimpleString) else None
    return canonical(f"{owner}.{text}") if owner and isinstance(text, str) else ""


def _imported_module(node: cst.BaseExpression, symbols: dict[cst.CSTNode, str]) -> str:
    """The module that `importlib.import_module("module")` gives."""
    if not isinstance(node, cst.Call) or len(node.args) != 1:
        return ""
    name = node.args[0].value
    if symbols.get(node.func) != "importlib.import_module" or not isinstance(
        name, cst.SimpleString
    ):
        return ""
    return str(name.evaluated_value)


def whole_name(source: Source, node: cst.CSTNode) -> tuple[cst.CSTNode, str]:
    """The whole dotted name that begins with a node, and what follows the node in it."""
    rest = ""
    parent = source.parent(node)
    while isinstance(parent, cst.Attribute) and parent.value is node:
        rest += f".{parent.attr.value}"
        node, parent = parent, source.parent(parent)
    return node, rest
