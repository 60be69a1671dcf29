"""The reverse import graph: which files of a project import others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

from fsdplint.discovery.module_resolver import ALL, Modules, Target
from fsdplint.discovery.walk import project_files
from fsdplint.source.files import Unreadable
from fsdplint.source.folders import project_root

MAX_IMPORTERS = 100  # files that a migration is validated with because they import what it changes

MAX_DEPTH = 3  # files between a file and one that it imports indirectly


@dataclass
class ImportQueries:
    """Queries about projects, and their answers.

    Attributes:
        users: for files, the real paths of the files that import them and are not checked with
            them.
        importers: queries for importers: the files, and their importers.
        searched: one file of each project that was searched completely.
    """

    users: dict[str, list[str]] = field(default_factory=dict)
    importers: list[tuple[list[str], list[str]]] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)


class ImporterSearch(Protocol):
    """Finds the files that import others."""

    def importers(self, targets: Iterable[Path], limit: int) -> list[Path]:
        """The files that import one of these, directly or indirectly, the nearest first."""
        ...


class ProjectIndex:
    """The files of projects, searched and read once.

    Attributes:
        queries: queries and answers since the last reset; a changed answer invalidates cached
            results.
    """

    def __init__(
        self,
        excluded: Callable[[Path, bool], bool] | None = None,
        overrides: Mapping[Path, str] | None = None,
        search: ImporterSearch | None = None,
    ) -> None:
        """
        Args:
            excluded: whether the settings exclude a path that a search found; the second argument
                says whether it is a folder.
            overrides: texts to use instead of those on disk.
            search: finds the importers of files; by default the projects are searched.
        """
        self._excluded = excluded
        self._modules = Modules(overrides)
        self._search = search
        self._found: dict[tuple[Path, bool], list[Path]] = {}
        self._real: dict[Path, str] = {}
        self._roots: dict[Path, Path] = {}
        self._users: dict[str, list[tuple[str, Target]]] = {}
        self._indexed: set[str] = set()
        self.queries = ImportQueries()

    def files(self, path: Path, *, excluded: bool = True) -> list[Path]:
        """The files of the project of a file.

        excluded: leave out files that the settings exclude.
        """
        key = (self.root(path), excluded)
        if key not in self._found:
            if excluded and self._excluded is not None:
                found = project_files(path, self._excluded)
            else:
                found = project_files(path)
            new = [file for file in found if file.path not in self._real]
            self._real.update((file.path, file.real) for file in new)
            self._found[key] = [file.path for file in found]
        return self._found[key]

    def root(self, path: Path) -> Path:
        """The root of the project of a file."""
        if path not in self._roots:
            self._roots[path] = project_root(path)
        return self._roots[path]

    def real(self, path: Path) -> str:
        """The real path of a file."""
        if path not in self._real:
            self._real[path] = self._modules.key(path)
        return self._real[path]

    def importing(
        self, files: Iterable[Path], targets: Iterable[Path]
    ) -> Iterator[tuple[Path, Path, tuple[tuple[str, str], ...], bytes]]:
        """Which of these files import one of the targets, and which of its names.

        Yields the importing file, the target, the imported names with their local names (none if
        the module itself or all of it is imported), and the importing file's content. Unreadable
        files are left out.
        """
        known = self._index(files)
        for target in targets:
            users = self._users.get(self.real(target), ())
            self.queries.users[str(target)] = sorted({user for user, _ in users if user in known})
            for user, imported in users:
                path = known.get(user)
                data = None if path is None else self._read(path)
                if path is not None and data is not None:
                    whole = imported.bound is not None or any(
                        name == ALL for name, _ in imported.names
                    )
                    yield path, target, () if whole else imported.names, data

    def importers(self, targets: Iterable[Path]) -> list[Path]:
        """The files of the targets' projects that import one of them, directly or indirectly, the
        nearest first."""
        targets = list(targets)
        if self._search is None:
            found = self._importers(targets)
        else:
            found = self._search.importers(targets, MAX_IMPORTERS)
            if self._excluded is not None:
                found = [path for path in found if not self._excluded(path, False)]
        self.queries.importers.append((list(map(str, targets)), list(map(str, found))))
        return found

    def imported_files(
        self, files: Iterable[Path], matters: Callable[[bytes], bool], depth: int = MAX_DEPTH
    ) -> list[Path]:
        """The files that matter and that some files of their projects import, directly or
        indirectly, with the files between them.

        Args:
            files: the importing files.
            matters: decides this for the content of a file.
            depth: the number of files that do not matter, one after another, through which a file
                is found.
        """
        wanted: dict[str, None] = {}
        nearest: dict[str, list[str]] = {self.real(path): [] for path in files}
        visited = set(nearest)
        roots = {str(self.root(Path(key))) for key in nearest}
        while nearest:
            following: dict[str, list[str]] = {}
            for key, between in nearest.items():
                data = self._read(Path(key))
                for target in () if data is None else self._modules.targets(key, data):
                    name = target.file
                    inside = any(Path(name).is_relative_to(root) for root in roots)
                    content = self._read(Path(name)) if inside and name not in visited else None
                    if content is None:
                        continue
                    if matters(content):
                        wanted.update(dict.fromkeys([*between, name]))
                        following[name] = []
                    elif len(between) < depth and name not in following:
                        following[name] = [*between, name]
            visited.update(following)
            nearest = following
        return [Path(name) for name in wanted]

    def containing(self, path: Path, words: Sequence[bytes]) -> list[Path]:
        """The files of the project of a file that contain all of some words, at most
        `MAX_IMPORTERS`."""
        self.queries.searched.append(str(path))
        found = (file for file in self.files(path) if file.suffix == ".py")
        having = (file for file in found if all(map((self._read(file) or b"").__contains__, words)))
        return list(islice(having, MAX_IMPORTERS))

    def _importers(self, targets: Sequence[Path]) -> list[Path]:
        roots = {self.root(path): path for path in targets}
        files = [file for path in roots.values() for file in self.files(path)]
        known = self._index(files)
        nearest = [self.real(target) for target in targets]
        visited = set(nearest)
        found: list[Path] = []
        while nearest and len(found) < MAX_IMPORTERS:
            users = dict.fromkeys(
                user for target in nearest for user, _ in self._users.get(target, ())
            )
            nearest = [user for user in users if user in known and user not in visited]
            visited.update(nearest)
            found += (known[user] for user in nearest)
        return found[:MAX_IMPORTERS]

    def add_imports(
        self, users: Mapping[str, list[tuple[str, Target]]], indexed: Iterable[str]
    ) -> None:
        """Add the imports that an earlier search found.

        Args:
            users: for real paths of files, the files that import them.
            indexed: the files whose imports are known.
        """
        self._users.update(users)
        self._indexed.update(indexed)

    def _index(self, files: Iterable[Path]) -> dict[str, Path]:
        """Index the imports of files; returns the files by their real paths."""
        known: dict[str, Path] = {}
        for path in files:
            key = self.real(path)
            known.setdefault(key, path)
            if key in self._indexed:
                continue
            self._indexed.add(key)
            data = self._read(path)
            for target in () if data is None else self._modules.targets(key, data):
                self._users.setdefault(target.file, []).append((key, target))
        return known

    def _read(self, path: Path) -> bytes | None:
        try:
            return self._modules.read(path)
        except Unreadable:
            return None
