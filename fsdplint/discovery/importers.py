"""Who imports some files, among the files of their projects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fsdplint.discovery.module_resolver import Modules, Target
from fsdplint.discovery.walk import project_files
from fsdplint.source.files import Unreadable
from fsdplint.source.folders import project_root


@dataclass
class Notes:
    """What was asked about projects, and the answers.

    Attributes:
        users: for files, the real paths of those that import them and are not examined with them.
        callers: files whose callers were asked for, and those.
        searched: files all of whose projects' files were looked into.
    """

    users: dict[str, list[str]] = field(default_factory=dict)
    callers: list[tuple[list[str], list[str]]] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)


class Projects:
    """The files of projects, searched and read once.

    Attributes:
        notes: what was asked and answered since this was emptied: an answer that is another one
            now makes what depends on it worthless.
    """

    def __init__(
        self,
        excluded: Callable[[Path, bool], bool] | None = None,
        overrides: Mapping[Path, str] | None = None,
    ) -> None:
        """
        Args:
            excluded: whether the settings exclude a file or folder (its second argument says
                which) that was found in a search.
            overrides: texts to take instead of what is on disk.
        """
        self._excluded = excluded
        self._modules = Modules(overrides)
        self._found: dict[tuple[Path, bool], list[Path]] = {}
        self._real: dict[Path, str] = {}
        self._roots: dict[Path, Path] = {}
        self._users: dict[str, list[tuple[str, Target]]] = {}
        self._indexed: set[str] = set()
        self.notes = Notes()

    def files(self, path: Path, *, excluded: bool = True) -> list[Path]:
        """The files of the project of a file. excluded: whether without those that the settings
        exclude."""
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

        Yields the importing file, the target, the names imported from it with what they are called
        there (none where the module itself is imported, or all of it) and the importing file's
        content. Unreadable files are left out.
        """
        known = self._index(files)
        for target in targets:
            users = self._users.get(self.real(target), ())
            self.notes.users[str(target)] = sorted({user for user, _ in users if user in known})
            for user, imported in users:
                path = known.get(user)
                data = None if path is None else self._read(path)
                if path is not None and data is not None:
                    whole = imported.bound is not None or ("*", "*") in imported.names
                    yield path, target, () if whole else imported.names, data

    def callers(self, targets: Iterable[Path], files: Iterable[Path], limit: int) -> list[Path]:
        """Those of these files that import one of the targets, however indirectly, the nearest
        first.

        limit: how many there may be; the farthest are left out.
        """
        known = self._index(files)
        targets = list(targets)
        nearest = [self.real(target) for target in targets]
        seen = set(nearest)
        found: list[Path] = []
        while nearest and len(found) < limit:
            users = dict.fromkeys(
                user for target in nearest for user, _ in self._users.get(target, ())
            )
            nearest = [user for user in users if user in known and user not in seen]
            seen.update(nearest)
            found += (known[user] for user in nearest)
        return found[:limit]

    def seed(self, users: Mapping[str, list[tuple[str, Target]]], indexed: Iterable[str]) -> None:
        """Take over who imports whom from a search that was done before.

        users: for real paths of files, those who import them. indexed: whose imports are known.
        """
        self._users.update(users)
        self._indexed.update(indexed)

    def _index(self, files: Iterable[Path]) -> dict[str, Path]:
        """Find out what files import; gives them by their real paths."""
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
