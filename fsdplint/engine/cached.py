"""A run that takes from the cache what is as it was, and examines the rest."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdplint.discovery.importers import Notes
from fsdplint.engine.cache import Cache, content, digest, stamps, version
from fsdplint.engine.workers import Group, examined
from fsdplint.source.folders import project_root

if TYPE_CHECKING:
    from fsdplint.engine.outcome import Outcome
    from fsdplint.engine.session import Run


CLOCK_SECONDS = 0.05  # by which the times of files may be off


class Remembering:
    """The cache as one run may use it."""

    def __init__(self, run: Run, cache: Cache) -> None:
        self._run = run
        self._cache = cache
        self._started = time.time()
        self._contents: dict[str, str | None] = {}
        self._listings: dict[Path, str] = {}

    def outcomes(self, groups: Sequence[Group], processes: int) -> list[Outcome]:
        """What examining each group comes to, in order."""
        if not groups:
            return []
        from fsdplint.diagnostics.plugins import Plugins, plugins

        # It is not known what rules of others read, nor what those would find that are broken.
        if self._run.overrides or plugins() != Plugins():
            return examined(groups, self._run.examine, processes)
        keys = [self._key(group) for group in groups]
        found = {at: known for at, key in enumerate(keys) if (known := self._known(key))}
        todo = [at for at in range(len(groups)) if at not in found]
        new = examined([groups[at] for at in todo], self._run.examine, processes)
        for at, outcome in zip(todo, new, strict=True):
            found[at] = outcome
            if not outcome.problems and not self._is_changing(outcome):
                self._cache.put(keys[at], self._entry(outcome))
        if todo:
            self._cache.tidy()
        return [found[at] for at in range(len(groups))]

    def _key(self, group: Group) -> str:
        """What stands for a group and all that holds for the run."""
        options = self._run.options_of(group)
        what = ([str(path) for path in group], str(project_root(group[0])), options, self._run_key)
        return digest(repr(what).encode("utf-8", "surrogatepass"))

    @cached_property
    def _run_key(self) -> str:
        run = self._run
        settings = sorted({repr(run.settings_of(path)) for path in run.paths})
        what = (settings, run.command_line, bool(run.problems))
        return repr((version(), os.getcwd(), *what))

    def _known(self, key: str) -> Outcome | None:
        from fsdplint.engine.outcome import Outcome

        entry = self._cache.get(key, self._valid)
        try:
            return None if entry is None else Outcome.from_data(entry["outcome"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def _entry(self, outcome: Outcome) -> dict[str, Any]:
        paths = [os.path.realpath(path) for path in outcome.files]
        return {
            "reads": {path: self._content(path) for path in paths},
            "given": [path for path in paths if path in self._run.given],
            "searched": {path: self._stamps(Path(path)) for path in outcome.notes.searched},
            "outcome": outcome.as_data(),
        }

    def _is_changing(self, outcome: Outcome) -> bool:
        """Whether a file may have been read before it was changed."""
        for path in outcome.files:
            try:
                if os.stat(path).st_mtime > self._started - CLOCK_SECONDS:
                    return True
            except OSError:
                return True
        return False

    def _valid(self, entry: Mapping[str, Any]) -> bool:
        reads = entry["reads"]
        return (
            all(self._content(path) == known for path, known in reads.items())
            and entry["given"] == [path for path in reads if path in self._run.given]
            and all(
                os.path.isfile(path) == known for path, known in entry["outcome"]["asked"].items()
            )
            and all(self._stamps(Path(path)) == known for path, known in entry["searched"].items())
            and self._notes_hold(entry["outcome"]["notes"], set(reads))
        )

    def _notes_hold(self, notes: Mapping[str, Any], reads: Set[str]) -> bool:
        """Whether what was asked about other files would be answered as it was."""
        projects = self._run.projects
        for target, users in notes["users"].items():
            files = projects.files(Path(target), excluded=False)
            others = [path for path in files if projects.real(path) not in reads]
            projects.notes = asked = Notes()
            for _ in projects.importing(others, [Path(target)]):
                pass
            if asked.users[target] != users:
                return False
        return all(
            [str(path) for path in self._run.callers(map(Path, targets))] == callers
            for targets, callers in notes["callers"]
        )

    def _content(self, path: str) -> str | None:
        if path not in self._contents:
            self._contents[path] = content(path)
        return self._contents[path]

    def _stamps(self, path: Path) -> str:
        """What stands for the content of all files of a project."""
        root = self._run.projects.root(path)
        if root not in self._listings:
            files = self._run.projects.files(path, excluded=False)
            self._listings[root] = stamps(map(self._run.projects.real, files))
        return self._listings[root]
