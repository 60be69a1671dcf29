"""Which files may be changed."""

from __future__ import annotations

from collections.abc import Container, Set
from pathlib import Path

from fsdplint.config.settings_finder import SettingsFinder
from fsdplint.discovery.walk import DEFAULT_EXCLUDES


class EditableFiles(Container[str]):
    """The real paths of the files that fixes may change."""

    def __init__(
        self, given: Set[str], linked_out: Set[str], project: Path | None, finder: SettingsFinder
    ) -> None:
        """
        Args:
            given: the real paths of the files that the user gave.
            linked_out: those of them to which a link leads out of the paths that the user named.
            project: the folder all of whose files may be changed, but for those that a search
                leaves out; None if only files that were given may be changed.
            finder: knows what the settings exclude.
        """
        self._given = given
        self._linked_out = linked_out
        self._project = project
        self._finder = finder

    def __contains__(self, path: object) -> bool:
        if path in self._given and path not in self._linked_out:
            return True
        if self._project is None:
            return False
        found = Path(str(path))
        return found.is_relative_to(self._project) and not self._is_excluded(found, self._project)

    def _is_excluded(self, path: Path, project: Path) -> bool:
        """Whether a search of the project leaves out a file."""
        folders = path.relative_to(project).parents
        return any(folder.name in DEFAULT_EXCLUDES for folder in folders) or any(
            self._finder.excludes(part, part != path)
            for part in (path, *path.parents)
            if part.is_relative_to(project) and part != project
        )
