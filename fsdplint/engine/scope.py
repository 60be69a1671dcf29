"""What holds for files that belong together, whatever else is checked in the same run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.config.options import Options
from fsdplint.config.settings_finder import SettingsFinder
from fsdplint.config.target_torch import explicit, of_project
from fsdplint.source.folders import project_root

if TYPE_CHECKING:
    from fsdplint.trace.torch_target import Target


class Scope:
    """The options of groups of files, each worked out from these files alone."""

    def __init__(self, finder: SettingsFinder, unreadable: Callable[[Path, OSError], None]) -> None:
        """
        Args:
            finder: knows the settings of each file.
            unreadable: called with a requirements file that cannot be read, and the error.
        """
        self._finder = finder
        self._unreadable = unreadable
        self._required: dict[tuple[Path, Path], Target | None] = {}

    def options(self, paths: Sequence[Path]) -> Options:
        """How files are fixed: as the settings of the first and the requirements of all say."""
        settings = self._finder.of(paths[0])
        target = explicit(settings.target_torch) or self._of_requirements(paths)
        return Options(target, settings.checkpoint)

    def unsafe_fixes(self, paths: Iterable[Path]) -> bool:
        """Whether unsafe fixes may be applied to files: where their settings disagree, no."""
        return all(self._finder.of(path).unsafe_fixes for path in paths)

    def _of_requirements(self, paths: Sequence[Path]) -> Target | None:
        """The torch that the nearest requirements ask for which are above all of these files."""
        folders = [
            str(path.absolute() if path.is_dir() else path.absolute().parent) for path in paths
        ]
        root = project_root(paths[0])
        common = Path(os.path.commonpath(folders))
        if not common.is_relative_to(root):  # files of several projects
            common = Path(folders[0])
        key = common, root
        if key not in self._required:
            problems: list[tuple[Path, OSError]] = []
            self._required[key] = of_project(common, root, problems)
            for path, error in problems:
                self._unreadable(path, error)
        return self._required[key]
