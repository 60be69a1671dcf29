"""Who imports some files, among the files of their projects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from fsdplint.files import Unreadable, project_files, project_root
from fsdplint.imports import Modules, Target


class Projects:
    """The files of projects, searched and read once.

    Attributes:
        consulted: the roots of the projects whose files were searched.
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
        self._users: dict[str, list[tuple[str, Target]]] = {}
        self._indexed: set[str] = set()
        self.consulted: dict[Path, Path] = {}

    def files(self, path: Path, *, excluded: bool = True) -> list[Path]:
        """The files of the project of a file. excluded: whether without those that the settings
        exclude."""
        root = project_root(path)
        self.consulted[root] = path
        key = (root, excluded)
        if key not in self._found:
            if excluded and self._excluded is not None:
                self._found[key] = project_files(path, self._excluded)
            else:
                self._found[key] = project_files(path)
        return self._found[key]

    def importing(
        self, files: Iterable[Path], targets: Iterable[Path]
    ) -> Iterator[tuple[Path, Path, tuple[str, ...], bytes]]:
        """Which of these files import one of the targets, and which of its names.

        Yields the importing file, the target, the names imported from it (none where the module
        itself is imported, or all of it) and the importing file's content. Unreadable files are
        left out.
        """
        known = self._index(files)
        for target in targets:
            for user, imported in self._users.get(self._modules.key(target), ()):
                path = known.get(user)
                data = None if path is None else self._read(path)
                if path is not None and data is not None:
                    names = tuple(name for name, _ in imported.names)
                    whole = imported.bound is not None or "*" in names
                    yield path, target, () if whole else names, data

    def callers(self, targets: Iterable[Path], files: Iterable[Path], limit: int) -> list[Path]:
        """Those of these files that import one of the targets, however indirectly, the nearest
        first.

        limit: how many there may be; the farthest are left out.
        """
        known = self._index(files)
        nearest = [self._modules.key(target) for target in targets]
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

    def _index(self, files: Iterable[Path]) -> dict[str, Path]:
        """Find out what files import; gives them by their real paths."""
        known: dict[str, Path] = {}
        for path in files:
            key = self._modules.key(path)
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
