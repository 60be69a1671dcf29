"""Which files are relevant, judged by their bytes, and which of them belong together.

No file is decoded or parsed, and libcst is not imported: a run on a tree without FSDP code costs
little more than reading it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from fsdplint.discovery.module_resolver import Modules, Target
from fsdplint.discovery.relevance import Relevance
from fsdplint.discovery.walk import File
from fsdplint.source import config_files
from fsdplint.source.files import (
    MAX_BYTES,
    Problem,
    Unreadable,
    check_text,
    is_too_large,
    too_large,
)
from fsdplint.source.folders import project_root
from fsdplint.source.fsdp_words import mentions
from fsdplint.source.launch_commands import Launch, find_launches, launches_with_fsdp


@dataclass
class Selection:
    """The relevant files.

    Attributes:
        groups: the files by programs: no file of a group uses relevant code of another group. Files
            keep the given order, and groups the order of their first files. Settings files are in
            one group with all files that use Accelerate, because each may be launched with any.
        problems: the problems with unreadable files.
        users: for files, the files that import them.
        scanned: the files whose imports are known.
    """

    groups: list[list[Path]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    users: Mapping[str, list[tuple[str, Target]]] = field(default_factory=dict)
    scanned: Set[str] = frozenset()

    @property
    def paths(self) -> list[Path]:
        """All of the files."""
        return [path for group in self.groups for path in group]


def select(
    files: Sequence[File],
    *,
    searched: Sequence[Path] = (),
    overrides: Mapping[Path, str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> Selection:
    """Select the relevant files.

    A file that the user named must be readable Python even if it is not relevant.

    Args:
        files: the files to choose from.
        searched: the folders that they were found in.
        overrides: texts to use instead of those on disk.
        max_bytes: the largest size of code that is read.
    """
    modules = Modules(overrides)
    result = Selection()
    loaded = _load(files, modules, max_bytes, result.problems)
    launched = _launched_with_fsdp(loaded)
    if (
        launched
        or any(file.named for file in loaded.files.values())
        or not all(map(_is_whole_project, searched))
        or any(map(mentions, loaded.contents.values()))
    ):
        relevance = Relevance(modules, max_bytes)
        relevant_files = relevance.search(loaded.contents, launched)
        result.groups = _groups(relevance, relevant_files, loaded.files)
        result.users, result.scanned = relevance.importers, relevance.scanned
    if loaded.settings:
        users = {loaded.files[key].path for key in _users_of_accelerate(loaded)}
        result.groups = _with_settings(result.groups, loaded.settings, users)
    selected = {path for group in result.groups for path in group}
    for key, file in loaded.files.items():
        if file.named and file.path not in selected:
            problem = check_text(file.path, loaded.contents[key], max_bytes)
            result.problems += [problem] if problem is not None else []
    return result


@dataclass
class _Loaded:
    """The files that are small enough to scan.

    Attributes:
        files: the Python files by their real paths.
        contents: their contents by their real paths.
        settings: the relevant settings files.
    """

    files: dict[str, File] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    settings: list[Path] = field(default_factory=list)


def _load(
    files: Sequence[File], modules: Modules, max_bytes: int, problems: list[Problem]
) -> _Loaded:
    """Read files; adds unreadable files, and relevant files that are too large, to `problems`."""
    result = _Loaded()
    for file in files:
        try:
            data = modules.read(file.path)
        except Unreadable as error:
            problems.append(error.problem)
            continue
        is_config = config_files.is_config(file.path)
        matters = config_files.matters if is_config else mentions
        if is_too_large(file.path, data, max_bytes):
            if matters(data):  # other large files are probably generated, and irrelevant
                problems.append(too_large(file.path, len(data), max_bytes))
        elif not is_config:
            result.files[file.real], result.contents[file.real] = file, data
        elif matters(data):
            result.settings.append(file.path)
        elif file.named:
            problem = check_text(file.path, data, max_bytes)
            problems += [problem] if problem is not None else []
    return result


def _users_of_accelerate(loaded: _Loaded) -> list[str]:
    """The files that use Accelerate, by their real paths."""
    return [key for key, data in loaded.contents.items() if b"accelerate" in data]


def _launched_with_fsdp(loaded: _Loaded) -> set[str]:
    """The programs with Accelerate that a script of their project starts with FSDP."""
    found: set[str] = set()
    launches: dict[Path, tuple[Launch, ...]] = {}
    for key in _users_of_accelerate(loaded):
        root = project_root(loaded.files[key].path)
        if root not in launches:
            launches[root] = find_launches(str(root))
        if any(launches_with_fsdp(one, str(root), key) for one in launches[root]):
            found.add(key)
    return found


def _groups(
    relevance: Relevance, relevant: Set[str], files: Mapping[str, File]
) -> list[list[Path]]:
    leader = {key: key for key in relevant}

    def lead(key: str) -> str:
        while leader[key] != key:
            leader[key] = key = leader[leader[key]]
        return key

    for one, other in relevance.joined:
        leader[lead(one)] = lead(other)
    groups: dict[str, list[Path]] = {}
    for key, file in files.items():
        if key in relevant:
            groups.setdefault(lead(key), []).append(file.path)
    return list(groups.values())


def _with_settings(
    groups: list[list[Path]], settings: list[Path], launched: Set[Path]
) -> list[list[Path]]:
    """The groups, with all files that may be launched with the settings in one group with them."""
    others = [group for group in groups if launched.isdisjoint(group)]
    merged = [path for group in groups if not launched.isdisjoint(group) for path in group]
    return [*others, [*merged, *settings]]


def _is_whole_project(folder: Path) -> bool:
    """Whether files in the folder import no file of their project from outside of it."""
    return project_root(folder) == folder.absolute() and not (folder / "__init__.py").exists()


def relevant(files: Iterable[Path]) -> list[Path]:
    """The relevant files among these, without unreadable ones."""
    return select([File(path, named=True) for path in files]).paths
