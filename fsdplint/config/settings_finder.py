"""The settings of all files: the nearest settings file, and the command line over it."""

from __future__ import annotations

from pathlib import Path

from fsdplint.config.command_line import CommandLine
from fsdplint.config.settings import Settings, SettingsError
from fsdplint.config.settings_files import read_settings, settings_in


class SettingsFinder:
    """The settings of all files; reads each settings file once."""

    def __init__(self, command_line: CommandLine | None = None) -> None:
        """Raises SettingsError if the command line itself is invalid."""
        self.command_line = command_line or CommandLine()
        self._by_folder: dict[Path, Settings] = {}
        self.command_line.override(Settings())
        self._given = self._of_command_line()

    def of(self, path: Path) -> Settings:
        """The settings of a file or folder.

        Raises:
            SettingsError: the nearest settings file is invalid.
        """
        absolute = path.absolute()
        return self.of_folder(absolute if absolute.is_dir() else absolute.parent)

    def of_folder(self, folder: Path) -> Settings:
        known = self._by_folder.get(folder)
        if known is None:
            known = self._read(folder)
            if known is None:
                is_top = folder.parent == folder
                known = (
                    self.command_line.override(Settings(root=folder))
                    if is_top
                    else self.of_folder(folder.parent)
                )
            self._by_folder[folder] = known
        return known

    def excludes(self, path: Path, is_folder: bool) -> bool:
        """Whether the settings exclude a file or folder that a search finds."""
        return self.of_folder(path.absolute().parent).excludes(path, is_folder)

    def leaves_out(self, path: Path) -> bool:
        """Whether the settings exclude a file or folder that the user names."""
        settings = self.of_folder(path.absolute().parent)
        return settings.force_exclude and settings.excludes(path, path.is_dir())

    def _read(self, folder: Path) -> Settings | None:
        if self._given is not None:
            return self._given
        settings = settings_in(folder)
        return None if settings is None else self.command_line.override(settings)

    def _of_command_line(self) -> Settings | None:
        """The settings of all files, if the command line says which."""
        settings: Settings | None = None
        if self.command_line.config is not None:
            settings = read_settings(self.command_line.config)
            if settings is None:
                raise SettingsError(f"{self.command_line.config}: has no settings for fsdplint")
        elif self.command_line.isolated:
            settings = Settings(root=Path().absolute())
        return None if settings is None else self.command_line.override(settings)
