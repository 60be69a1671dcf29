"""The imports in the bytes of files, and the project files that they resolve to.

No file is decoded or parsed for this, and libcst is not imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fsdplint.discovery.module_index import INSTALLED, LIBRARY, ModuleIndex
from fsdplint.discovery.names_by_value import (
    Lookup,
    lookups,
    paths_in_code,
    paths_in_settings,
)
from fsdplint.source.files import NOTEBOOK, Unreadable, read_bytes
from fsdplint.source.folders import Folder, project_root

_IMPORT = re.compile(
    rb"""
    [ \t]*
    (?: from (?:[ \t]+|(?=\.)) (?P<module>[.\w\x80-\xff]+) [ \t]+ import\b [ \t]*
        (?P<names> \( (?: [^)\#] | \#[^\n]* )* | (?: [^\#\n;\\(] | \\\r?\n )* )
      | import[ \t]+ (?P<modules> (?: [^\#\n;\\] | \\\r?\n )+ )
    )
    """,
    re.VERBOSE,
)
_CALL = b"import_module("
_CALLED = re.compile(
    rb"""\s* (?:name\s*=\s*)? ["'] (?P<name>[.\w]+) ["']
    (?: \s*,\s* (?:package\s*=\s*)? ["'] (?P<package>[.\w]+) ["'] )? \s* [,)]""",
    re.VERBOSE,
)
_ASSIGNED = re.compile(rb"(?P<alias>\w+)[ \t]*=[ \t]*(?:importlib\.)?$")
_COMMENT = re.compile(rb"#[^\n]*")
ALL = "*"


@dataclass(frozen=True)
class Import:
    """The import of one module.

    Attributes:
        level: dots before the module's name.
        parts: the module's name.
        names: the imported names of a `from`, each with its local name; empty if the module itself
            is imported.
        alias: the local name of the module itself after `as`.
    """

    level: int
    parts: tuple[str, ...]
    names: tuple[tuple[str, str], ...] = ()
    alias: str | None = None

    def binds(self) -> Iterator[str]:
        """The names that it binds."""
        if self.names:
            yield from (alias for _, alias in self.names)
        else:
            yield self.alias or self.parts[0]


def imports(data: bytes) -> Iterator[Import]:
    """The imports of a file, including those in functions."""
    for match in _statements(data):
        yield from _imports(match)


def _statements(data: bytes) -> Iterator[re.Match[bytes]]:
    at = data.find(b"import")
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        start = max(start, data.rfind(b";", start, at) + 1, data.rfind(b":", start, at) + 1)
        match = _IMPORT.match(data, start)
        if match is None or match.end() <= at:  # not a statement, or one that was already found
            at = data.find(b"import", at + 6)
            continue
        yield match
        at = data.find(b"import", match.end())


def _imports(match: re.Match[bytes]) -> Iterator[Import]:
    """What a statement imports."""
    module = match.group("module")
    if module is not None:
        name = module.lstrip(b".")
        names = tuple((one, alias or one) for one, alias in _names(match.group("names")))
        yield Import(len(module) - len(name), _parts(name), names)
    else:
        for one, alias in _names(match.group("modules")):
            yield Import(0, tuple(one.split(".")), (), alias)


def calls(data: bytes) -> Iterator[Import]:
    """The modules that a file imports by `importlib.import_module` with literal names."""
    at = data.find(_CALL)
    while at >= 0:
        match = _CALLED.match(data, at + len(_CALL))
        if match is not None:
            package = match.group("package")
            full = absolute(_text(match.group("name")), None if package is None else _text(package))
            if full is not None:
                assigned = _ASSIGNED.search(data[max(0, at - 100) : at])
                alias = None if assigned is None else _text(assigned.group("alias"))
                yield Import(0, tuple(full.split(".")), (), alias)
        at = data.find(_CALL, at + len(_CALL))


def absolute(name: str, package: str | None) -> str | None:
    """The module that `import_module(name, package)` imports; None if that is not certain."""
    if name.startswith("."):
        if package is None:
            return None
        tail = name.lstrip(".")
        parents = package.split(".")
        depth = len(parents) - (len(name) - len(tail) - 1)
        if depth <= 0:
            return None  # above the top-level package
        name = ".".join([*parents[:depth], *([tail] if tail else [])])
    return name if all(part.isidentifier() for part in name.split(".")) else None


def _parts(name: bytes) -> tuple[str, ...]:
    return tuple(_text(name).split(".")) if name else ()


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _names(text: bytes) -> Iterator[tuple[str, str | None]]:
    """The names in `a as b, c` and their aliases, without brackets, comments and line breaks."""
    if b"#" in text:
        text = _COMMENT.sub(b"", text)
    text = text.replace(b"\\", b" ").replace(b"(", b" ")
    for item in text.split(b","):
        words = item.decode("utf-8", "replace").split()
        if words:
            yield words[0], words[2] if len(words) > 2 and words[1] == "as" else None


@dataclass(frozen=True)
class Target:
    """A file of the project that an import resolves to.

    Attributes:
        file: its real path.
        bound: the dotted name by which the importing file uses the module itself; None if only
            names of the module are imported.
        names: those names, each with its local name. "*" stands for all names; its local name is
            "*", or the function that finds one of them by a value.
        passing: whether it is a package that is imported only on the way to a module in it.
    """

    file: str
    bound: str | None = None
    names: tuple[tuple[str, str], ...] = ()
    passing: bool = False


class Modules:
    """Resolves imports to files of projects, and caches the results."""

    def __init__(self, overrides: Mapping[Path, str] | None = None) -> None:
        """overrides: texts to use instead of those on disk."""
        self._overrides = {self.key(path): text for path, text in (overrides or {}).items()}
        self._module_files: dict[str, str | None] = {}
        self._targets: dict[tuple[str, bytes], tuple[Target, ...]] = {}
        self._folders: dict[str, Folder] = {}
        self._roots: dict[str, tuple[str, ...]] = {}
        self._settings: dict[str, set[str]] = {}
        self._index = ModuleIndex(self.read)

    @staticmethod
    def key(path: Path | str) -> str:
        return os.path.realpath(path)

    def read(self, path: Path) -> bytes:
        """The file's content. Raises Unreadable."""
        text = self._overrides.get(self.key(path)) if self._overrides else None
        return read_bytes(path) if text is None else text.encode("utf-8", "surrogatepass")

    def targets(self, path: str, data: bytes) -> Iterator[Target]:
        """The project files that a file, given by its real path and content, imports."""
        folder = os.path.dirname(path)
        code = code_of(path, data)
        for match in _statements(code):
            key = (folder, match.group())  # other files of the folder often have the same
            found = self._targets.get(key)
            if found is None:
                targets = [self._resolve(path, one) for one in _imports(match)]
                found = self._targets[key] = tuple(chain.from_iterable(targets))
            yield from found
        for one in calls(code):
            yield from self._resolve(path, one)
        for lookup in lookups(code):
            for file in self._files_of(lookup, path, code):
                if file != path:
                    yield Target(file, None, ((ALL, lookup.callee),))

    def _files_of(self, lookup: Lookup, path: str, code: bytes) -> Iterator[str]:
        """The files that a look-up by a value in a file with this code may find."""
        if not lookup.prefix:
            for dotted in sorted(paths_in_code(code) | self._paths_in_settings(path)):
                yield from self._file_of(path, dotted.split("."))
            return
        name = lookup.prefix.lstrip(".")
        level = len(lookup.prefix) - len(name)
        folder = os.path.dirname(path)
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        for base in (folder,) if level else self._search_path(folder):
            package = os.path.join(base, *name.split(".")[:-1])
            found = [
                self.module_file(os.path.join(package, one)) for one in self._modules_of(package)
            ]
            if found and package != path:
                yield from (file for file in found if file is not None)
                return

    def _modules_of(self, package: str) -> list[str]:
        folder = self._folder(package)
        files = [name[:-3] for name in folder.names if name.endswith(".py")]
        return sorted({*files, *filter(folder.has_folder, folder.names)} - {"__init__"})

    def _file_of(self, path: str, parts: list[str]) -> Iterator[str]:
        """The file of the module that a dotted path begins with, if it is in the project."""
        for base in self._search_path(os.path.dirname(path)):
            if not self._has_module(base, parts[0]):
                continue
            for end in range(len(parts), 0, -1):
                file = self.module_file(os.path.join(base, *parts[:end]))
                if file is not None:
                    yield file
                    return

    def _paths_in_settings(self, path: str) -> set[str]:
        root = str(project_root(Path(path).parent))
        if root not in self._settings:
            self._settings[root] = paths_in_settings(root)
        return self._settings[root]

    def _resolve(self, path: str, one: Import) -> Iterator[Target]:
        if not one.level and one.parts[0] == LIBRARY:
            return
        folder = os.path.dirname(path)
        bases = self._search_path(folder)
        if one.level:
            for _ in range(one.level - 1):
                folder = os.path.dirname(folder)
            bases = (folder,)
        for base in bases:
            if one.parts and not self._has_module(base, one.parts[0]):
                continue
            found = list(self._names_in(base, one) if one.names else self._modules_in(base, one))
            if found:
                yield from found
                return
        if not one.level:
            yield from self._targets_on_longer_path(path, one)

    def _targets_on_longer_path(self, path: str, one: Import) -> Iterator[Target]:
        """The targets of an import that only a longer search path resolves."""
        if not one.names:
            file = self._index.find(path, one.parts) if one.alias is not None else None
            if file is not None:
                yield Target(file, one.alias)
        for name, alias in one.names:
            file = self._index.find(path, one.parts, name)
            if file is not None:
                yield Target(file, None, ((name, alias),))
                continue
            file = self._index.find(path, [*one.parts, name])
            if file is not None:
                yield Target(file, alias)

    def _modules_in(self, base: str, one: Import) -> Iterator[Target]:
        """The targets of `import a.b.c`, which binds `a` and imports all three modules."""
        for end in range(1, len(one.parts) + 1):
            file = self.module_file(os.path.join(base, *one.parts[:end]))
            if file is None:
                continue
            if one.alias is None:
                passing = end < len(one.parts)
                yield Target(file, ".".join(one.parts[:end]), passing=passing)
            elif end == len(one.parts):
                yield Target(file, one.alias)

    def _names_in(self, base: str, one: Import) -> Iterator[Target]:
        package = os.path.join(base, *one.parts)
        rest = []
        for name, alias in one.names:
            file = self.module_file(os.path.join(package, name))
            if file is not None:
                yield Target(file, alias)
            if file is None or self._binds(package, name):
                rest.append((name, alias))
        if rest:
            file = self.module_file(package)
            if file is not None:
                yield Target(file, None, tuple(rest))

    def _binds(self, package: str, name: str) -> bool:
        """Whether a package binds the name of a module in it to something else.

        `from package import name` imports what is bound, for example the function of the module
        with the same name.
        """
        file = self.module_file(package)
        if file is None:
            return False
        try:
            data = self.read(Path(file))
        except Unreadable:
            return False
        word = name.encode()
        if word not in data:
            return False
        imported = (local for one in imports(data) if one.parts for _, local in one.names)
        return name in imported or bool(
            re.search(rb"^(?:def|class)[ \t]+" + re.escape(word) + rb"\b", data, re.MULTILINE)
        )

    def _has_module(self, base: str, name: str) -> bool:
        folder = self._folder(base)
        return name + ".py" in folder.names or folder.has_folder(name)

    def _folder(self, path: str) -> Folder:
        """The entries of a folder. They are cached because most look-ups fail."""
        folder = self._folders.get(path)
        if folder is None:
            folder = self._folders[path] = Folder(path)
        return folder

    def module_file(self, stem: str) -> str | None:
        """The file of the module or package with this path, without a suffix."""
        if stem not in self._module_files:
            self._module_files[stem] = self._module_file(stem)
        return self._module_files[stem]

    def _module_file(self, stem: str) -> str | None:
        path, name = os.path.split(stem)
        folder = self._folder(path)
        package = self._folder(stem).file("__init__.py") if folder.has_folder(name) else None
        return package or folder.file(name + ".py")

    def _search_path(self, folder: str) -> tuple[str, ...]:
        if folder not in self._roots:
            self._roots[folder] = search_path(folder)
        return self._roots[folder]


def search_path(folder: str, root: str | None = None) -> tuple[str, ...]:
    """The folders in which the absolute imports of a file are searched, in order.

    These are the folder itself (for a script), those above it in its package or project, and the
    project's `src`. For an installed package, neither the project around it nor other packages
    count.

    Args:
        folder: the folder of the file, absolute.
        root: the project's root; by default it is searched.
    """
    found = [folder]
    parent = folder
    if not any(name in INSTALLED for name in folder.split(os.sep)):
        root = root or str(project_root(Path(folder)))
        while parent != root and parent.startswith(root + os.sep):
            parent = os.path.dirname(parent)
            found.append(parent)
    while os.path.isfile(os.path.join(parent, "__init__.py")):
        parent = os.path.dirname(parent)
        if os.path.basename(parent) in INSTALLED:
            break
        found.append(parent)
    return tuple(dict.fromkeys([*found, *([os.path.join(root, "src")] if root else [])]))


def code_of(path: str, data: bytes) -> bytes:
    """The Python in a file: of a notebook, the code of its cells."""
    if path.endswith(NOTEBOOK):
        from fsdplint.source.notebooks import python_of

        return python_of(data)
    return data
