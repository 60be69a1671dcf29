"""The caches of projects, and the command `fsdplint clean`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from fsdplint.cli.streams import CLEAN, FAILED
from fsdplint.config.command_line import CommandLine
from fsdplint.config.settings_finder import SettingsFinder
from fsdplint.engine.cache import FOLDER, Cache
from fsdplint.source.folders import project_root


def remove_caches(paths: Iterable[Path]) -> int:
    """Remove the caches of the projects of some paths; returns the exit code.

    Raises:
        SettingsError: the settings of a project are wrong.
    """
    code = CLEAN
    existing: list[Path] = []
    for path in paths:
        if path.exists():
            existing.append(path)
        else:
            click.echo(f"{path}: no such file or folder", err=True)
            code = FAILED
    for cache in {cache.folder: cache for cache in map(cache_of, existing)}.values():
        try:
            if cache.remove():
                click.echo(f"Removed {cache.folder}.")
        except OSError as error:
            click.echo(f"{cache.folder}: cannot be removed: {error.strerror or error}", err=True)
            code = FAILED
    return code


def cache_of(path: Path, command_line: CommandLine | None = None) -> Cache:
    """The cache of a path's project."""
    settings = SettingsFinder(command_line).of(path)
    if settings.cache_dir is not None:
        return Cache(settings.cache_dir, within=settings.root)
    root = project_root(path)
    return Cache(root / FOLDER, within=root)
