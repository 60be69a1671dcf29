"""Copies of the user's project, one for each run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
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


def copy_project(root: Path, target: Path, limit: int = LIMIT, besides: Path | None = None) -> None:
    """Copy a project's files to a new folder: no version control, no environments, no caches.

    besides: a folder that is left out as well, in which the copies are made.

    Raises:
        CopyError: it is larger than `limit` bytes, or cannot be read or written.
    """
    size = 0
    for folder, names, files in os.walk(root):
        names[:] = [
            name
            for name in names
            if Path(folder, name) != besides and not _left_out(Path(folder) / name)
        ]
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

    def ignored(folder: str, names: list[str]) -> list[str]:
        at = Path(folder)
        return [name for name in names if at / name == besides or _left_out(at / name)]

    try:
        shutil.copytree(root, target, symlinks=True, ignore=ignored)
    except shutil.Error as error:
        reasons = [str(why) for _, _, why in error.args[0]]  # one for every file
        raise CopyError(f"cannot copy {root}: {reasons[0]}") from error
    except OSError as error:
        raise CopyError(f"cannot copy {root}: {error}") from error


def left_behind(copy: Path, original: Path) -> list[Path]:
    """The files in a copy that are not those of the original, by their names in it."""
    found = []
    for folder, names, files in os.walk(copy):
        names[:] = [name for name in names if not _left_out(Path(folder) / name)]
        for name in files:
            relative = (Path(folder) / name).relative_to(copy)
            if _differs(copy / relative, original / relative):
                found.append(relative)
    return sorted(found)


def _differs(one: Path, other: Path) -> bool:
    try:
        ours, theirs = one.stat(), other.stat()
    except OSError:
        return one.exists()
    return (ours.st_mtime_ns, ours.st_size) != (theirs.st_mtime_ns, theirs.st_size)


def bring(files: Iterable[Path], source: Path, target: Path) -> None:
    """Copy files of one folder to the same places in another."""
    for relative in files:
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / relative, target / relative)


def _left_out(path: Path) -> bool:
    """Whether a file or folder stays behind: also a virtual environment, and sockets and pipes."""
    if path.name in _LEFT_OUT or (path / "pyvenv.cfg").exists():
        return True
    return path.exists() and not (path.is_file() or path.is_dir())
