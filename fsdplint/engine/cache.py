"""Results of checking groups of files, kept in a folder of the project.

An entry lists its dependencies, and is valid only while they are unchanged: the content of every
file that was read, the files that were searched and not found, and, if importers mattered, the
project's other files. Nothing in the folder is ever executed. An entry that cannot be read, is cut
short or was written by another version is ignored. So is one that came with a clone or a copy of
the folder: the names of entries depend on the folder on this disk. A folder that holds anything
else than a cache is not touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from fsdplint.source import reading
from fsdplint.source.folders import leads_out
from fsdplint.version import __version__

FOLDER = ".fsdplint_cache"
UNUSED_SECONDS = 30 * 24 * 3600  # after which an entry is removed


_TAG = "CACHEDIR.TAG"
_TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# made by fsdplint\n"
_ENTRY = re.compile(r"[0-9a-f]{32}\.json|\.new-.*", re.DOTALL)


class Cache:
    """The entries in a folder. Errors of the file system are ignored."""

    def __init__(self, folder: Path, within: Path | None = None) -> None:
        """The folder is made when the first entry is written.

        Args:
            folder: the folder of the cache.
            within: a folder that no link may lead out of.
        """
        self.folder = folder
        self._within = within

    @cached_property
    def _is_own(self) -> bool:
        """Whether the folder is a cache, or free to become one."""
        if self._within is not None and leads_out(self._within, self.folder):
            return False
        try:
            if (self.folder / _TAG).read_bytes() == _TAG_TEXT.encode():
                return True
        except OSError:
            pass
        try:
            return not any(self.folder.iterdir())
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def get(self, key: str, valid: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any] | None:
        """The entry with a key, if there is one that is valid."""
        try:
            path = self._path(key)
            entry = json.loads(reading.read(path))
            if not valid(entry):
                return None
            with contextlib.suppress(OSError):
                os.utime(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return entry if isinstance(entry, dict) else None

    def put(self, key: str, entry: Mapping[str, Any]) -> None:
        """Write an entry atomically."""
        with contextlib.suppress(OSError):
            self._prepare()
            handle, name = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(entry, file)
                os.replace(name, self._path(key))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise

    def _path(self, key: str) -> Path:
        """Where an entry lies. Raises OSError."""
        if not self._is_own:
            raise FileNotFoundError(self.folder)
        status = os.stat(self.folder)
        what = (key, os.path.realpath(self.folder), status.st_dev, status.st_ino)
        return self.folder / f"{digest(repr(what).encode('utf-8', 'surrogatepass'))}.json"

    def _prepare(self) -> None:
        if not self._is_own or (self.folder / _TAG).exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _TAG).write_text(_TAG_TEXT)
        (self.folder / ".gitignore").write_text("# made by fsdplint\n*\n")

    def tidy(self) -> None:
        """Remove entries that were not used for `UNUSED_SECONDS`, and unfinished files."""
        if not self._is_own:
            return
        limit = time.time() - UNUSED_SECONDS
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.folder):
                if _ENTRY.fullmatch(entry.name):
                    with contextlib.suppress(OSError):
                        if entry.stat().st_mtime < limit:
                            os.unlink(entry.path)

    def remove(self) -> bool:
        """Remove the cache and nothing else; returns whether there was one. Raises OSError."""
        if not self._is_own or not (self.folder / _TAG).exists():
            return False
        for entry in list(os.scandir(self.folder)):
            if _ENTRY.fullmatch(entry.name) or entry.name in (_TAG, ".gitignore"):
                os.unlink(entry.path)
        with contextlib.suppress(OSError):
            self.folder.rmdir()  # unless somebody put a file of their own there
        return True


def digest(data: bytes) -> str:
    """The digest of some content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def content(path: str) -> str | None:
    """The digest of a file's content; None if it cannot be read."""
    try:
        return digest(reading.read(path))
    except OSError:
        return None


def stamps(paths: Iterable[str]) -> str:
    """The digest of the times and sizes of files."""
    lines = []
    for path in paths:
        try:
            status = os.stat(path)
            lines.append(f"{path}\0{status.st_mtime_ns}\0{status.st_size}")
        except OSError:
            lines.append(path)
    return digest("\n".join(lines).encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=1)
def version() -> str:
    """A key of this version of fsdplint, including uncommitted changes of its files."""
    folders = [Path(__file__).parents[1], *map(Path, _rules_path())]
    files = sorted(str(path) for folder in folders for path in folder.rglob("*.py"))
    return f"{__version__} {sys.version_info[:3]} {stamps(files)}"


def _rules_path() -> Iterable[str]:
    from importlib.util import find_spec

    spec = find_spec("fsdplint.rules")
    return (
        ()
        if spec is None or spec.submodule_search_locations is None
        else list(spec.submodule_search_locations)
    )
