"""Copies of the user's project, one for each run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_MARKERS = ("pyproject.toml", ".git")
_LEFT_OUT = {
    ".git",
    ".hg",
    ".mypy_cache",
    ".nox",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".venv",
    "__pycache__",
    "node_modules",
    "venv",
    "wandb",
}
# Bytes that a project may have before it is not copied.
LIMIT = 500 * 1024 * 1024


class CopyError(Exception):
    """The project cannot be copied; the text says why and what to do."""


def project_root(script: Path) -> Path:
    """The nearest folder upward with a pyproject.toml or .git, else the script's own.

    The home folder and the root of the file system are not taken for a project.
    """
    home = Path.home()
    for folder in script.parents:
        if folder == home or folder.parent == folder:
            break
        if any((folder / marker).exists() for marker in _MARKERS):
            return folder
    return script.parent


def copy_project(root: Path, target: Path, limit: int = LIMIT) -> None:
    """Copy a project's files to a new folder: no version control, no environments, no caches.

    Raises:
        CopyError: it is larger than `limit` bytes, or cannot be read or written.
    """
    size = 0
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if not _left_out(Path(folder) / name)]
        for name in files:
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
        if size > limit:
            raise CopyError(
                f"{root} holds more than {limit // 2**20} MB and is not copied; keep data and "
                "checkpoints elsewhere, or give the program a folder of its own"
            )
    try:
        shutil.copytree(root, target, symlinks=True, ignore=_ignored)
    except (OSError, shutil.Error) as error:
        raise CopyError(f"cannot copy {root}: {error}") from error


def _ignored(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if _left_out(Path(folder) / name)]


def _left_out(path: Path) -> bool:
    """Whether a file or folder stays behind: also a virtual environment, and sockets and pipes."""
    if path.name in _LEFT_OUT or (path / "pyvenv.cfg").exists():
        return True
    return path.exists() and not (path.is_file() or path.is_dir())
