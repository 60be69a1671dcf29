"""The settings files of a project, for programs that get the path of theirs when they start."""

from __future__ import annotations

import os
from collections.abc import Iterator

from fsdplint.source import reading
from fsdplint.source.config_files import MAX_BYTES

SUFFIXES = (".yaml", ".yml")  # JSON files hold data as often as settings
MAX_FILES = 200
MAX_ENTRIES = 20_000  # of folders; there the search stops
MAX_DEPTH = 4  # of folders in folders
_NO_SETTINGS = {"node_modules", "site-packages", "venv", "__pycache__", "charts", "helm"}


def find_settings(root: str) -> list[tuple[str, str]]:
    """The YAML files below a folder, by their paths relative to it, with their texts, in order.

    Hidden folders, large files and files that are not UTF-8 are left out.
    """
    found: list[tuple[str, str]] = []
    for path in sorted(paths_below(root, SUFFIXES)):
        if len(found) == MAX_FILES:
            break
        try:
            data = reading.read(path, MAX_BYTES)
            found.append((os.path.relpath(path, root), data.decode("utf-8-sig")))
        except (OSError, UnicodeDecodeError):
            continue
    return found


def paths_below(root: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """The files below a folder whose names end in a certain way, without hidden ones."""
    seen = 0
    for folder, folders, files in os.walk(root):
        seen += len(folders) + len(files)
        if seen > MAX_ENTRIES:
            return
        depth = os.path.relpath(folder, root).count(os.sep) + (folder != root)
        deep = depth >= MAX_DEPTH
        folders[:] = [] if deep else sorted(one for one in folders if _may_have_settings(one))
        for name in files:
            if name.endswith(suffixes) and not name.startswith("."):
                yield os.path.join(folder, name)


def _may_have_settings(folder: str) -> bool:
    return not folder.startswith(".") and folder not in _NO_SETTINGS
