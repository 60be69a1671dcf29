"""The files in given folders, and in the project of a file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fsdplint.config.patterns import compile_patterns, pattern_error
from fsdplint.source import config_files
from fsdplint.source.files import SUFFIXES, Problem, missing
from fsdplint.source.folders import Folder, holds, is_marked, project_root
from fsdplint.source.reading import read_text

DEFAULT_EXCLUDES = frozenset(
    [
        *(".bzr", ".direnv", ".eggs", ".fsdplint_cache", ".git", ".hg", ".ipynb_checkpoints"),
        *(".mypy_cache", ".nox"),
        *(".pytest_cache", ".pytype", ".ruff_cache", ".svn", ".tox", ".venv", "__pycache__"),
        *("__pypackages__", "build", "node_modules", "site-packages", "venv", "wandb"),
    ]
)
MAX_IGNORE_BYTES = 256 * 1024  # of a .gitignore; each line costs time for every file
JOURNAL_PREFIX = ".fsdplint-journal-"  # see fsdplint.edits.journal


@dataclass(frozen=True)
class File:
    """A file to check.

    Attributes:
        named: whether the user named the file itself, and not only a folder around it.
        known: its real path, if a search found it without a link.
    """

    path: Path
    named: bool = False
    known: str | None = field(default=None, compare=False)

    @property
    def real(self) -> str:
        """Its real path."""
        return self.known or os.path.realpath(self.path)


def discover(
    arguments: Iterable[Path],
    excluded: Callable[[Path, bool], bool] = lambda path, is_folder: False,
    journals: list[str] | None = None,
) -> tuple[list[File], list[Problem]]:
    """Find Python files, and settings files that may be relevant: each real file once, in order.

    Args:
        arguments: files, which are always taken, and folders, which are searched.
        excluded: whether the settings exclude a path that a search found; the second argument says
            whether it is a folder.
        journals: receives the journals of writes in the searched folders.
    """
    files: dict[str, File] = {}
    problems: list[Problem] = []
    for argument in arguments:
        if argument.is_dir():
            search = _Search(excluded, problems, journals)
            for path, real in search.run(argument):
                real = real or os.path.realpath(path)
                files.setdefault(real, File(path, known=real))
        elif argument.exists():
            files[os.path.realpath(argument)] = File(argument, named=True)
        else:
            problems.append(missing(str(argument), _missing_reason(argument)))
    return list(files.values()), problems


def linked_out(arguments: Iterable[Path], files: Iterable[File]) -> set[str]:
    """The real paths of files that a search found behind a link, outside of the given paths.

    They are checked but never changed.
    """
    given = [os.path.realpath(path) for path in arguments]
    result = {file.real for file in files if not file.named}
    return {
        path
        for path in result
        if not any(path == one or path.startswith(one.rstrip(os.sep) + os.sep) for one in given)
    }


def _missing_reason(path: Path) -> OSError:
    try:
        path.stat()
    except OSError as error:
        return error
    return FileNotFoundError()


class _Search:
    """The search of one folder. Links come last, so that real paths win."""

    def __init__(
        self,
        excluded: Callable[[Path, bool], bool],
        problems: list[Problem],
        journals: list[str] | None,
    ) -> None:
        self.excluded = excluded
        self.problems = problems
        self.journals = [] if journals is None else journals
        self.seen: set[str] = set()
        self.file_links: list[Path] = []
        self.links: list[tuple[Path, list[_IgnoreFile]]] = []

    def run(self, top: Path) -> Iterator[tuple[Path, str | None]]:
        """The files in a folder, each with its real path if no link leads to it."""
        # A folder that the user names is searched even if it is ignored.
        above = [
            one for one in _ignore_files_above(top, self.problems) if not one.verdict(top, True)
        ]
        yield from self._walk(top, above)
        while self.links:
            yield from self._walk(*self.links.pop(0))
        yield from ((path, None) for path in self.file_links)

    def _walk(self, top: Path, ignores: list[_IgnoreFile]) -> Iterator[tuple[Path, str | None]]:
        stack = [(top, ignores)]
        while stack:
            folder, ignores = stack.pop()
            real = os.path.realpath(folder)
            if real in self.seen:
                continue
            self.seen.add(real)
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                self.problems.append(missing(str(folder), error))
                continue
            if any(entry.name == ".gitignore" for entry in entries):
                ignores = [*ignores, *_IgnoreFile.read(folder / ".gitignore", self.problems)]
            below: list[tuple[Path, list[_IgnoreFile]]] = []
            for entry in entries:
                path = folder / entry.name
                if holds(entry.is_dir):
                    if entry.name not in DEFAULT_EXCLUDES and self._is_wanted(path, True, ignores):
                        (self.links if entry.is_symlink() else below).append((path, ignores))
                elif entry.name.startswith(JOURNAL_PREFIX):
                    self.journals.append(str(path))
                elif (
                    entry.name.endswith((*SUFFIXES, *config_files.SUFFIXES))
                    and holds(entry.is_file)
                    and self._is_wanted(path, False, ignores)
                    and (entry.name.endswith(SUFFIXES) or config_files.found_matters(path))
                ):
                    if entry.is_symlink():
                        self.file_links.append(path)
                    else:
                        yield path, os.path.join(real, entry.name)
            stack.extend(reversed(below))

    def _is_wanted(self, path: Path, is_folder: bool, ignores: list[_IgnoreFile]) -> bool:
        if self.excluded(path, is_folder):
            return False
        for ignore in reversed(ignores):  # the nearest file decides
            verdict = ignore.verdict(path, is_folder)
            if verdict is not None:
                return not verdict
        return True


class _IgnoreFile:
    """One .gitignore (or .git/info/exclude), whose patterns are relative to `base`."""

    def __init__(self, base: str, lines: list[str]) -> None:
        self.base = base
        try:
            self.spec = compile_patterns(lines)
        except (re.error, ValueError, OverflowError, RecursionError):
            # git ignores invalid patterns silently
            self.spec = compile_patterns([one for one in lines if not pattern_error(one)])

    @classmethod
    def read(
        cls, path: Path, problems: list[Problem], base: Path | None = None
    ) -> list[_IgnoreFile]:
        """The file in a list; empty if it does not exist, is unreadable or has no patterns."""
        try:
            lines = read_text(path, MAX_IGNORE_BYTES, "surrogateescape").splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            problems.append(missing(str(path), error))
            return []
        patterns = [line for line in lines if line.strip() and not line.startswith("#")]
        if not patterns:
            return []
        return [cls(os.path.abspath(base or path.parent), patterns)]

    def verdict(self, path: Path, is_folder: bool) -> bool | None:
        """True if the path is ignored, False if it is expressly not, None otherwise."""
        relative = os.path.relpath(os.path.abspath(path), self.base).replace(os.sep, "/")
        return self.spec.check_file(relative + "/" if is_folder else relative).include


def _ignore_files_above(folder: Path, problems: list[Problem]) -> list[_IgnoreFile]:
    """The ignore files of the repository that apply to a folder, without the folder's own."""
    top = folder.absolute()
    chain: list[Path] = []
    for parent in (top, *top.parents):
        if (parent / ".git").exists():
            result = _IgnoreFile.read(parent / ".git" / "info" / "exclude", problems, parent)
            for step in [parent, *reversed(chain)] if parent != top else []:
                result.extend(_IgnoreFile.read(step / ".gitignore", problems))
            return result
        if parent != top:
            chain.append(parent)
    return []


def project_files(
    path: Path, excluded: Callable[[Path, bool], bool] = lambda path, is_folder: False
) -> list[File]:
    """The Python files of the project that a file belongs to.

    If nothing marks a project's root, the project is the file's folder without its subfolders.
    """
    root = project_root(path)
    if is_marked(root):
        return discover([root], excluded)[0]
    folder = Folder(str(root))
    found = [(root / name, folder.file(name)) for name in sorted(folder.names)]
    return [
        File(file, known=real)
        for file, real in found
        if real is not None and file.suffix == ".py" and not excluded(file, False)
    ]
