"""What holds for files that belong together, whatever else is checked in the same run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from fsdplint.folders import project_root
from fsdplint.options import Options
from fsdplint.settings import SettingsFinder
from fsdplint.target import Target, explicit, of_project

Unread = list[tuple[Path, OSError]]


def options_of(
    finder: SettingsFinder, paths: Sequence[Path], unreadable: Unread | None = None
) -> Options:
    """How a group of files is fixed: as the settings of its first file and its requirements say.

    unreadable: gets the requirements that cannot be read, with the reason.
    """
    settings = finder.of(paths[0])
    return Options(target_of(settings.target_torch, paths, unreadable), settings.checkpoint)


def target_of(
    setting: str | None, paths: Sequence[Path], unreadable: Unread | None = None
) -> Target | None:
    """The torch that files are for: as a setting says, else as the nearest requirements do that are
    above all of them.

    unreadable: see `options_of`.
    """
    if setting is not None:
        return explicit(setting)
    root = project_root(paths[0])
    folders = [str(path.absolute() if path.is_dir() else path.absolute().parent) for path in paths]
    common = Path(os.path.commonpath(folders))
    if not common.is_relative_to(root):  # files of several projects
        common = Path(folders[0])
    return of_project(common, root, unreadable)


def unsafe_fixes(finder: SettingsFinder, paths: Iterable[Path]) -> bool:
    """Whether unsafe fixes may be applied to files: where their settings disagree, no."""
    return all(finder.of(path).unsafe_fixes for path in paths)
