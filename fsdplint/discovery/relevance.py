"""Which files and names are relevant to FSDP, and which files belong together.

Relevance is a taint over names. A statement that names FSDP is relevant, and taints the names that
it binds. The same holds for a statement that uses a tainted name of this or another file. A file is
relevant if one of its statements is. A taint ends `MAX_DISTANCE` files away from the code that
names FSDP. Code that only tests whether a module is sharded is relevant, but taints no name. See
`fsdplint.discovery.byte_scanner` for how statements are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.discovery.module_resolver import ALL, Modules, Target, code_of
from fsdplint.discovery.names_by_value import own_namespaces, reads_members
from fsdplint.discovery.tainted_file import TaintedFile
from fsdplint.source.files import MAX_BYTES, Unreadable, is_too_large
from fsdplint.source.fsdp_words import mentions

if TYPE_CHECKING:
    from fsdplint.source.source import Source

MAX_DISTANCE = 3  # files without a mention of FSDP that a taint may pass


class Relevance:
    """Decides which of some files are relevant.

    Attributes:
        importers: for files, the files that import them.
        scanned: the files whose imports are known.
        joined: pairs of real paths of files: the first imports the second.
    """

    def __init__(self, modules: Modules, max_bytes: int = MAX_BYTES) -> None:
        """max_bytes: the largest size of code that is read."""
        self._modules = modules
        self._max_bytes = max_bytes
        self._files: dict[str, TaintedFile] = {}
        self._contents: dict[str, bytes] = {}
        self.importers: dict[str, list[tuple[str, Target]]] = {}
        self.scanned: set[str] = set()
        self._imports: dict[str, tuple[Target, ...]] = {}
        self._called: dict[tuple[str, str], bool] = {}
        self.joined: set[tuple[str, str]] = set()

    def search(self, contents: Mapping[str, bytes], launched: Set[str] = frozenset()) -> set[str]:
        """The relevant files among those given and those that they import.

        contents: the contents of the given files, by their real paths. launched: those that are
        relevant because of how they are started.
        """
        self._contents = dict(contents)
        level = self._scan(list(contents))
        for _ in range(MAX_DISTANCE + 2):  # the file that names FSDP, those between, and the last
            users: dict[TaintedFile, None] = {}
            for file in level:
                known = len(file.relevant)
                new = file.propagate()
                if new:
                    users.update(dict.fromkeys(self._spread_taint(file, new)))
                users.update(dict.fromkeys(self._register(file, known)))
            level = list(users)
        found = {
            path
            for path, file in self._files.items()
            if file.has_remarks or file.relevant_statements
        } | launched
        self.joined |= {
            (importer, path)
            for path in found
            for importer in self._importers_of(path)
            if importer in found
        }
        return found

    def _importers_of(self, path: str) -> set[str]:
        """The files that import a file, or a file that passes on all names of it."""
        result: set[str] = set()
        todo = [path]
        while todo:
            for importer, target in self.importers.get(todo.pop(), ()):
                if target.passing or importer in result:
                    continue
                result.add(importer)
                if (ALL, ALL) in target.names:
                    todo.append(importer)
        return result

    def imported_names(self) -> dict[str, frozenset[str]]:
        """For files by their real paths, the dotted names by which they use tainted names of other
        files."""
        return {path: frozenset(file.imported_from) for path, file in self._files.items()}

    def _scan(self, queue: list[str]) -> list[TaintedFile]:
        """Read the imports of files; returns the files that mention FSDP."""
        found = []
        visited = set(queue)
        for path in queue:  # the loop extends it
            data = self._read(path)
            self.scanned.add(path)
            if data is None:
                continue
            if mentions(data):
                found.append(self._file(path, data))
            for target in self._targets(path, data):
                self.importers.setdefault(target.file, []).append((path, target))
                if target.file not in visited:
                    visited.add(target.file)
                    queue.append(target.file)
        return found

    def _targets(self, path: str, data: bytes) -> tuple[Target, ...]:
        """The project files that a file with some content imports."""
        if path not in self._imports:
            self._imports[path] = tuple(self._modules.targets(path, data))
        return self._imports[path]

    def _read(self, path: str) -> bytes | None:
        data = self._contents.get(path)
        if data is None:
            try:
                data = self._modules.read(Path(path))
            except Unreadable:
                return None
            if is_too_large(Path(path), data, self._max_bytes):
                data = b""
            self._contents[path] = data
        return data

    def _file(self, path: str, data: bytes) -> TaintedFile:
        if path not in self._files:
            self._files[path] = TaintedFile.of(path, code_of(path, data), self._max_bytes)
        return self._files[path]

    def _spread_taint(self, file: TaintedFile, new: Set[str]) -> list[TaintedFile]:
        """Taint names in the importers of a file; returns the importers with new names."""
        result = []
        for path, prefix, target in self._users(file.path):
            data = self._read(path)
            if data is None or path == file.path:
                continue
            if prefix is not None and reads_members(prefix, data):
                names = {prefix}  # any name of the file may be the one
            elif prefix is not None and "." in prefix and not self._calls(path, prefix, data):
                continue
            else:
                names = set(_imported_names(new, prefix, target, data))
            if names:
                user = self._file(path, data)
                kept = _imported_names(new & file.registries, prefix, target, data)
                user.add_imported(names | own_namespaces(data), set(kept))
                result.append(user)
        return result

    def _register(self, file: TaintedFile, known: int) -> list[TaintedFile]:
        """Taint what keeps the relevant code that a file registers: the files with new names.

        known: the number of the relevant statements that were looked at before.
        """
        result = []
        for one in file.relevant[known:]:
            for receiver in one.receivers if one.bound or not one.defines else ():
                for path, name in self._origins(file.path, receiver, set()):
                    data = self._read(path)
                    if data is not None:
                        keeper = self._file(path, data)
                        if keeper.register(name):
                            result.append(keeper)
        return result

    def _origins(self, path: str, dotted: str, visited: set[str]) -> Iterator[tuple[str, str]]:
        """The files of the project that define what a file uses by a dotted name, each with the
        name there."""
        data = self._read(path)
        if data is None or path in visited:
            return
        visited.add(path)
        first = dotted.partition(".")[0]
        yield path, first
        for target in self._targets(path, data):
            for name, alias in target.names:
                if alias == first and name != ALL:
                    yield from self._origins(target.file, name, visited)
            bound = target.bound
            if bound is not None and dotted.startswith(f"{bound}."):
                yield from self._origins(target.file, dotted.removeprefix(f"{bound}."), visited)

    def _calls(self, path: str, dotted: str, data: bytes) -> bool:
        """Whether a file with some content uses a dotted name."""
        key = (path, dotted)
        known = self._called.get(key)
        if known is None:
            above = dotted.rpartition(".")[0]
            known = ("." not in above or self._calls(path, above, data)) and (
                f"{dotted}.".encode() in data
            )
            self._called[key] = known
        return known

    def _users(self, path: str) -> Iterator[tuple[str, str | None, Target]]:
        """The files that import a file or a package around it, with the dotted name by which they
        use it; None if they import names of it."""
        for importer, target in self.importers.get(path, ()):
            yield importer, target.bound, target
        below = os.path.dirname(path) if path.endswith("__init__.py") else path.removesuffix(".py")
        names: list[str] = []
        while True:
            names.insert(0, os.path.basename(below))
            below = os.path.dirname(below)
            package = os.path.join(below, "__init__.py")
            if package == path or not os.path.isfile(package):
                return
            for importer, target in self.importers.get(package, ()):
                if target.bound is not None:
                    yield importer, ".".join([target.bound, *names]), target


def _imported_names(
    tainted: Set[str], prefix: str | None, target: Target, data: bytes
) -> Iterator[str]:
    """The dotted names by which a file with some content uses tainted names of another."""
    if prefix is None:
        for name, alias in target.names:
            if name == ALL and alias == ALL:
                yield from (one for one in tainted if "." not in one)
            elif name == ALL and tainted:
                yield alias
            elif name in tainted:
                yield alias
        return
    for name in tainted:
        if name.encode() in data:
            yield f"{prefix}.{name}"


# The names of sources ---------------------------------------------------------------------------


@dataclass(frozen=True)
class RelevantNames:
    """The names of a source that are relevant.

    Attributes:
        bound: the names that its relevant top-level statements bind.
        tainted: the dotted names by which it uses relevant code, including code in other files.
            Code that only tests whether a module is sharded does not count.
    """

    bound: frozenset[str]
    tainted: frozenset[str]


@dataclass
class RelevantCode:
    """The relevant files of a program, and the names in them.

    The interpreter works on other code last, because its work is bounded.

    Attributes:
        files: the real paths of the relevant files.
        imported: for files by their real paths, the dotted names by which they use tainted names of
            other files.
        max_bytes: the largest size of code that is read.
    """

    files: Set[str] = frozenset()
    imported: Mapping[str, frozenset[str]] = field(default_factory=dict)
    max_bytes: int = MAX_BYTES

    @classmethod
    def among(
        cls, paths: Iterable[Path], overrides: Mapping[Path, str], max_bytes: int = MAX_BYTES
    ) -> RelevantCode:
        """The relevant code of some files and of those that they import."""
        modules = Modules(overrides)
        contents: dict[str, bytes] = {}
        for path in paths:
            try:
                contents[modules.key(path)] = modules.read(path)
            except Unreadable:
                continue
        relevance = Relevance(modules, max_bytes)
        return cls(relevance.search(contents), relevance.imported_names(), max_bytes)

    def names(self, source: Source) -> RelevantNames:
        """The names of a source, whose text may have changed since the files were searched."""
        path = os.path.realpath(source.path)
        code = source.text.encode("utf-8", "surrogatepass")
        file = TaintedFile.of(path, code, self.max_bytes)
        file.add_imported(self.imported.get(path, frozenset()))
        file.propagate()
        bound = frozenset(name for one in file.relevant_statements for name in one.bound)
        return RelevantNames(bound, frozenset(file.tainted))
