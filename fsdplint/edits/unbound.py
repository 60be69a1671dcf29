"""Names that a rewrite leaves unbound."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Mapping, Set
from pathlib import PurePath

import libcst as cst

from fsdplint.source.positions import code_children, is_node
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import Bindings, bindings_of
from fsdplint.trace import Location

# Names that a module has without binding them; methods that use `super` have `__class__`.
PREDEFINED = frozenset(dir(builtins)) | {"__file__", "__path__", "__builtins__", "__class__"}


def unbound_names(bindings: Bindings) -> set[str]:
    """The names that a file reads but never binds; empty if an `import *` may bind them."""
    if any(scope.star for scope in bindings.scopes.values()):
        return set()
    names = set()
    for scope in bindings.scopes.values():
        for text in scope.references:
            name = text.partition(".")[0]
            if name not in names and name not in PREDEFINED and bindings.owner(scope, name) is None:
                names.add(name)
    return names


def lost_names(
    sources: Mapping[str, Source],
    changed: Mapping[str, Source],
    undecided: Set[tuple[str, str]] = frozenset(),
) -> Iterator[tuple[str, Location | None]]:
    """The names that a change leaves unbound, and where they are read.

    Args:
        sources: the files of a program, by their paths.
        changed: the files that change, with their new texts.
        undecided: names by their files that may be left unbound, because code before them raises.

    Yields:
        A description of the name, and its location if it is in a file that does not change.
    """
    for path, source in changed.items():
        before, after = bindings_of(sources[path]), bindings_of(source)
        open_names = {name for file, name in undecided if file == path}
        for name in sorted(unbound_names(after) - unbound_names(before) - open_names):
            yield f"`{name}` without a value in {path}", None
        for name in _read_early(source, _top_level(after) - _top_level(before)):
            yield f"`{name}` before its definition in {path}", None
        removed = _top_level(before) - _top_level(after) - open_names
        for at, text in _named_by_strings(path, removed, {**sources, **changed}):
            yield f'"{text}" without what it names', at


def _read_early(source: Source, names: set[str]) -> Iterator[str]:
    """The functions of some names that a statement reads before they are defined."""
    seen: set[str] = set()
    for statement in source.tree.body if names else ():
        if isinstance(statement, cst.FunctionDef) and statement.name.value in names & seen:
            yield statement.name.value
        seen |= _read_now(statement)


def _read_now(statement: cst.CSTNode) -> set[str]:
    """The names that a statement reads when it is executed: not those in bodies of functions."""
    read, stack = set(), [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, cst.Name):
            read.add(node.value)
        elif not isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            stack += [child for child in code_children(node) if is_node(child)]
    return read


def _top_level(bindings: Bindings) -> set[str]:
    scope = bindings.module
    return {*scope.others, *(item.local for item in scope.imports)}


def _named_by_strings(
    path: str, names: set[str], sources: Mapping[str, Source]
) -> Iterator[tuple[Location, str]]:
    """Strings that name an object of a module by its dotted name, as for `mock.patch`."""
    if not names:
        return
    pure = PurePath(path)
    module = pure.parent.name if pure.name == "__init__.py" else pure.stem
    several = "|".join(re.escape(name) for name in sorted(names))
    dotted = re.compile(rf"""["']((?:\w+\.)*{re.escape(module)}\.(?:{several}))["']""")
    for user, source in sources.items():
        for match in dotted.finditer(source.text):
            yield Location(user, source.position(match.start())[0]), match.group(1)
