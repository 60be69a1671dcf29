"""Which file of the workspace imports which, kept up to date while files are edited."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fsdplint.discovery.module_resolver import Modules
from fsdplint.discovery.walk import project_files
from fsdplint.interpreter.frames import Stopped
from fsdplint.source import config_files
from fsdplint.source.files import Unreadable, read_bytes
from fsdplint.source.folders import project_root
from fsdplint.source.fsdp_words import mentions

MAX_FILES = 20_000  # files of a project that are read


@dataclass(frozen=True)
class Entry:
    """What the index knows about a file.

    Attributes:
        stamp: time of change and size of the file on the disk; None for an open document.
        mentions: whether the file mentions FSDP.
        imports: the files of the project that it imports.
    """

    stamp: tuple[int, int] | None
    mentions: bool
    imports: frozenset[str]


class Index:
    """The files of all projects that open documents belong to, by their real paths."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._projects: dict[str, list[str]] = {}
        self._documents: dict[str, str] = {}
        self._modules = Modules()
        self.files_are_watched = False  # whether the editor reports changes of files
        self._verified: set[str] = set()  # files whose stamp was compared since `forget`

    def set_document(self, path: str, text: str | None) -> None:
        """Set the text of an open document; None closes it."""
        if text is None:
            self._documents.pop(path, None)
            self._entries.pop(path, None)
            self._verified.discard(path)
        elif self._documents.get(path) != text:
            self._documents[path] = text
            data = text.encode("utf-8", "surrogatepass")
            self._entries[path] = self._entry(path, data, None)

    def forget(self) -> None:
        """Drop what depends on files on the disk: some of them changed."""
        self._projects.clear()
        self._verified.clear()
        self._modules = Modules()
        documents, self._documents = self._documents, {}
        for path, text in documents.items():
            self.set_document(path, text)

    def matters(self, path: str, stop: Callable[[], bool]) -> bool:
        """Whether a file mentions FSDP, or imports such a file directly or indirectly."""
        if config_files.is_config(Path(path)):
            return config_files.matters(self._documents.get(path, "").encode("utf-8", "replace"))
        seen, queue = {path}, [path]
        for one in queue:  # grows while it is walked
            if stop():
                raise Stopped
            entry = self._current_entry(one)
            if entry is None:
                continue
            if entry.mentions:
                return True
            new = entry.imports - seen
            seen |= new
            queue += sorted(new)
        return False

    def importers(
        self, targets: Iterable[Path], limit: int, stop: Callable[[], bool]
    ) -> list[Path]:
        """The files that import a target, directly or indirectly, the nearest first."""
        wanted = {os.path.realpath(path) for path in targets}
        by_target: dict[str, list[str]] = {}
        for path in self._files(wanted, stop):
            if stop():
                raise Stopped
            entry = self._current_entry(path)
            for target in entry.imports if entry is not None else ():
                by_target.setdefault(target, []).append(path)
        found: list[str] = []
        seen, nearest = set(wanted), sorted(wanted)
        while nearest and len(found) < limit:
            importers = {one for target in nearest for one in by_target.get(target, ())}
            nearest = sorted(importers - seen)
            seen |= importers
            found += nearest
        return [Path(path) for path in found[:limit]]

    def _files(self, targets: Iterable[str], stop: Callable[[], bool]) -> Iterable[str]:
        """The files of the projects that the targets belong to, and all open documents."""
        found = dict.fromkeys(self._documents)
        for root, path in {str(project_root(Path(one))): one for one in targets}.items():
            if root not in self._projects:
                files = project_files(Path(path))[:MAX_FILES]
                self._projects[root] = [file.real for file in files]
            found.update(dict.fromkeys(self._projects[root]))
        return found

    def _current_entry(self, path: str) -> Entry | None:
        entry = self._entries.get(path)
        if path in self._documents or (self.files_are_watched and path in self._verified):
            return entry
        self._verified.add(path)
        try:
            status = os.stat(path)
        except OSError:
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        if entry is None or entry.stamp != stamp:
            try:
                data = read_bytes(Path(path))
            except Unreadable:
                return None
            entry = self._entries[path] = self._entry(path, data, stamp)
        return entry

    def _entry(self, path: str, data: bytes, stamp: tuple[int, int] | None) -> Entry:
        imports = frozenset(target.file for target in self._modules.targets(path, data))
        return Entry(stamp, mentions(data), imports)

    @property
    def documents(self) -> frozenset[str]:
        return frozenset(self._documents)


def overlaid(documents: Mapping[str, str]) -> dict[Path, str]:
    """The texts of documents as overlays of an engine session."""
    return {Path(path): text for path, text in documents.items()}
