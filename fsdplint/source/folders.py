"""The content of folders, with one system call each, and the root of a project."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

PROJECT_MARKERS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
# Files that an unpacked archive of a repository still has at its root, the surest ones first.
_ARCHIVE_MARKERS = (
    (".gitignore", ".gitattributes", ".github", "LICENSE", "LICENSE.md", "LICENSE.txt"),
    ("requirements.txt",),
    ("README.md", "README.rst", "README.txt", "README"),
)


def holds(question: Callable[[], bool]) -> bool:
    """The answer to an entry's `is_dir` or `is_file`, links followed."""
    try:
        return question()
    except OSError:  # a link that leads to itself
        return False


class Folder:
    """The content of a folder.

    Attributes:
        names: the names of its entries; empty if it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            with os.scandir(path) as entries:
                self._entries = {entry.name: entry for entry in entries}
        except OSError:
            self._entries = {}
        self.names = self._entries.keys()

    @cached_property
    def _real(self) -> str:
        return os.path.realpath(self._path)

    def has_folder(self, name: str) -> bool:
        entry = self._entries.get(name)
        return entry is not None and holds(entry.is_dir)

    def file(self, name: str) -> str | None:
        """The real path of a file in it; None if there is no file of this name."""
        entry = self._entries.get(name)
        if entry is None or not holds(entry.is_file):
            return None
        return os.path.realpath(entry) if entry.is_symlink() else os.path.join(self._real, name)


def leads_out(root: Path, path: Path) -> bool:
    """Whether a path, which may not exist yet, is outside of a folder after links are resolved."""
    real, top = os.path.realpath(path), os.path.realpath(root)
    return not Path(real).is_relative_to(top)


def project_root(path: Path) -> Path:
    """The nearest folder at or above `path` with a project marker, else the folder of `path`.

    An archive of a repository has no `.git`. So if no folder has a marker, one with a file that
    most repositories have at their root counts, except for the user's own folder.
    """
    folder = _folder_of(path)
    return _marked_root(folder) or folder


def is_marked(root: Path) -> bool:
    """Whether markers show that a folder is the root of a project."""
    return _marked_root(_folder_of(root)) == root.absolute()


def _folder_of(path: Path) -> Path:
    path = path.absolute()
    return path if path.is_dir() else path.parent


def _marked_root(folder: Path) -> Path | None:
    above = (folder, *folder.parents)
    home = os.path.expanduser("~")
    inside = [parent for parent in above if str(parent) not in (home, parent.anchor)]
    return _nearest(above, PROJECT_MARKERS) or next(
        filter(None, (_nearest(inside, markers) for markers in _ARCHIVE_MARKERS)), None
    )


def _nearest(folders: Iterable[Path], markers: Iterable[str]) -> Path | None:
    """The first folder with one of some entries."""
    return next(
        (folder for folder in folders if any((folder / one).exists() for one in markers)), None
    )
