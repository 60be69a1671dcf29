"""Names that a rewrite leaves without anything that binds them."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from fsdplint.source.source import Source
from fsdplint.syntax.bindings import Bindings, bindings_of
from fsdplint.trace import Location

# What a module has without binding it, and a method that mentions `super` or itself.
GIVEN = frozenset(dir(builtins)) | {"__file__", "__path__", "__builtins__", "__class__"}


def unbound(bindings: Bindings) -> set[str]:
    """The names that a file reads and nothing in it binds; none where `import *` may bind them."""
    if any(scope.star for scope in bindings.scopes.values()):
        return set()
    names = set()
    for scope in bindings.scopes.values():
        for text in scope.references:
            name = text.partition(".")[0]
            if name not in names and name not in GIVEN and bindings.owner(scope, name) is None:
                names.add(name)
    return names


def lost_names(
    sources: Mapping[str, Source], changed: Mapping[str, Source]
) -> Iterator[tuple[str, Location | None]]:
    """What reads a name that it would not find any more, in words, and where that is, if it is not
    only in the changed files.

    Args:
        sources: the files of a program, by their paths.
        changed: those of them that change, as they would be.
    """
    for path, source in changed.items():
        before, after = bindings_of(sources[path]), bindings_of(source)
        for name in sorted(unbound(after) - unbound(before)):
            yield f"`{name}` without a value in {path}", None
        gone = _top_level(before) - _top_level(after)
        for at, text in _named_by_strings(path, gone, {**sources, **changed}):
            yield f'"{text}" without what it names', at


def _top_level(bindings: Bindings) -> set[str]:
    scope = bindings.module
    return {*scope.others, *(item.local for item in scope.imports)}


def _named_by_strings(
    path: str, names: set[str], sources: Mapping[str, Source]
) -> Iterator[tuple[Location, str]]:
    """Strings that name something of a module by its dotted name, as `mock.patch` takes it."""
    if not names:
        return
    pure = PurePath(path)
    module = pure.parent.name if pure.name == "__init__.py" else pure.stem
    several = "|".join(re.escape(name) for name in sorted(names))
    dotted = re.compile(rf"""["']((?:\w+\.)*{re.escape(module)}\.(?:{several}))["']""")
    for user, source in sources.items():
        for match in dotted.finditer(source.text):
            yield Location(user, source.position(match.start())[0]), match.group(1)
