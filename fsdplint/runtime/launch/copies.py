"""Copies the user's project, once for each run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

_MARKERS = ("pyproject.toml", ".git")
_EXCLUDED = {
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
# The largest size, in bytes, of a project that is copied.
LIMIT = 500 * 1024 * 1024


class CopyError(Exception):
    """The project cannot be copied; the text says why and what to do."""


def project_root(script: Path) -> Path:
    """The nearest parent folder with a pyproject.toml or .git, else the script's folder.

    The home folder and the root of the file system are never a project.
    """
    home = Path.home()
    for folder in script.parents:
        if folder == home or folder.parent == folder:
            break
        if any((folder / marker).exists() for marker in _MARKERS):
            return folder
    return script.parent


def copy_project(
    root: Path, target: Path, limit: int = LIMIT, excluded: Path | None = None
) -> None:
    """Copy a project to a new folder, without version control, environments and caches.

    excluded: another folder to leave out: the one that holds the copies.

    Raises:
        CopyError: the project is larger than `limit` bytes, or a file cannot be copied.
    """
    size = 0
    for folder, names, files in os.walk(root):
        names[:] = [
            name
            for name in names
            if Path(folder, name) != excluded and not _is_excluded(Path(folder) / name)
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

    def excluded_names(folder: str, names: list[str]) -> list[str]:
        at = Path(folder)
        return [name for name in names if at / name == excluded or _is_excluded(at / name)]

    try:
        shutil.copytree(root, target, symlinks=True, ignore=excluded_names)
    except shutil.Error as error:
        reasons = [str(why) for _, _, why in error.args[0]]  # one for every file
        raise CopyError(f"cannot copy {root}: {reasons[0]}") from error
    except OSError as error:
        raise CopyError(f"cannot copy {root}: {error}") from error


def files_written(copy: Path, original: Path) -> list[Path]:
    """The files in a copy that are new or differ from the original, relative to the copy."""
    found = []
    for folder, names, files in os.walk(copy):
        names[:] = [name for name in names if not _is_excluded(Path(folder) / name)]
        for name in files:
            relative = (Path(folder) / name).relative_to(copy)
            if _differs(copy / relative, original / relative):
                found.append(relative)
    return sorted(found)


def _differs(one: Path, other: Path) -> bool:
    try:
        new, original_stat = one.stat(), other.stat()
    except OSError:
        return one.exists()
    return (new.st_mtime_ns, new.st_size) != (original_stat.st_mtime_ns, original_stat.st_size)


def copy_files(files: Iterable[Path], source: Path, target: Path) -> None:
    """Copy files of one folder to the same places in another."""
    for relative in files:
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / relative, target / relative)


def _is_excluded(path: Path) -> bool:
    """Whether a file or folder is not copied; excludes virtual environments, sockets and pipes."""
    if path.name in _EXCLUDED or (path / "pyvenv.cfg").exists():
        return True
    return path.exists() and not (path.is_file() or path.is_dir())
