"""The results of a session's groups in the cache, and whether they still hold."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import Any

from fsdplint.discovery.importers import ImportQueries
from fsdplint.engine.cache import Cache, content, digest, stamps, version
from fsdplint.engine.group_result import GroupResult
from fsdplint.engine.session import Session
from fsdplint.engine.workers import Group
from fsdplint.source.console_scripts import console_scripts
from fsdplint.source.folders import project_root

CLOCK_SECONDS = 0.05  # by which the times of files may be off


class CachedSession:
    """The results of a session's groups in the cache."""

    def __init__(self, session: Session, cache: Cache) -> None:
        self._session = session
        self._cache = cache
        self._started = time.time()
        self._contents: dict[str, str | None] = {}
        self._listings: dict[Path, str] = {}
        self._scripts_of: dict[str, tuple[tuple[str, str], ...]] = {}

    def load(self, groups: Sequence[Group]) -> list[GroupResult | None]:
        """The results of groups, in order; None for a group whose result does not hold any more."""
        return [self._load(self._key(group)) for group in groups]

    def store(self, groups: Sequence[Group], results: Sequence[GroupResult]) -> None:
        """Put the results of groups into the cache."""
        for group, result in zip(groups, results, strict=True):
            if not result.problems and not self._is_changing(result):
                self._cache.put(self._key(group), self._entry(result))
        if groups:
            self._cache.tidy()

    def _key(self, group: Group) -> str:
        """The digest of a group and of all that holds for it."""
        options = self._session.options_of(group)
        paths = [str(path) for path in group]
        root = str(project_root(group[0]))
        what = (paths, root, self._scripts(root), options, self._session_key)
        return digest(repr(what).encode("utf-8", "surrogatepass"))

    def _scripts(self, root: str) -> tuple[tuple[str, str], ...]:
        if root not in self._scripts_of:
            self._scripts_of[root] = console_scripts(root)
        return self._scripts_of[root]

    @cached_property
    def _session_key(self) -> str:
        session = self._session
        settings = sorted({repr(session.settings_of(path)) for path in session.paths})
        what = (settings, session.command_line, bool(session.problems))
        return repr((version(), os.getcwd(), *what))

    def _load(self, key: str) -> GroupResult | None:
        entry = self._cache.get(key, self._valid)
        try:
            return None if entry is None else GroupResult.from_data(entry["result"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def _entry(self, result: GroupResult) -> dict[str, Any]:
        paths = [os.path.realpath(path) for path in result.files]
        return {
            "reads": {path: self._content(path) for path in paths},
            "given": [path for path in paths if path in self._session.given],
            "searched": {path: self._stamps(Path(path)) for path in result.queries.searched},
            "result": result.as_data(),
        }

    def _is_changing(self, result: GroupResult) -> bool:
        """Whether a file may have been read before it was changed."""
        for path in result.files:
            try:
                if os.stat(path).st_mtime > self._started - CLOCK_SECONDS:
                    return True
            except OSError:
                return True
        return False

    def _valid(self, entry: Mapping[str, Any]) -> bool:
        reads = entry["reads"]
        return (
            all(self._content(path) == recorded for path, recorded in reads.items())
            and entry["given"] == [path for path in reads if path in self._session.given]
            and all(
                os.path.isfile(path) == recorded
                for path, recorded in entry["result"]["asked"].items()
            )
            and all(
                self._stamps(Path(path)) == recorded for path, recorded in entry["searched"].items()
            )
            and self._answers_hold(entry["result"]["queries"], set(reads))
        )

    def _answers_hold(self, queries: Mapping[str, Any], reads: Set[str]) -> bool:
        """Whether the queries about other files still have the same answers."""
        projects = self._session.projects
        for target, users in queries["users"].items():
            files = projects.files(Path(target), excluded=False)
            others = [path for path in files if projects.real(path) not in reads]
            projects.queries = new = ImportQueries()
            for _ in projects.importing(others, [Path(target)]):
                pass
            if new.users[target] != users:
                return False
        return all(
            [str(path) for path in projects.importers(map(Path, targets))] == importers
            for targets, importers in queries["importers"]
        )

    def _content(self, path: str) -> str | None:
        if path not in self._contents:
            self._contents[path] = content(path)
        return self._contents[path]

    def _stamps(self, path: Path) -> str:
        """The digest of the times and sizes of all files of a project."""
        root = self._session.projects.root(path)
        if root not in self._listings:
            files = self._session.projects.files(path, excluded=False)
            self._listings[root] = stamps(map(self._session.projects.real, files))
        return self._listings[root]
