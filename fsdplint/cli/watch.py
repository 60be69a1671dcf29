"""`--watch`: the same again whenever a file changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from fsdplint.config.settings import CommandLine, SettingsError, SettingsFinder
from fsdplint.discovery.walk import discover
from fsdplint.source.folders import project_root

PAUSE = 0.5  # seconds between two looks
SHARE = 10  # a look may take this part of the time

Snapshot = dict[str, tuple[int, int]]
Look = Callable[[], Snapshot]


def watch(
    paths: Sequence[Path],
    job: Callable[[], object],
    command_line: CommandLine | None = None,
    changed: Callable[[Look, Snapshot], None] | None = None,
) -> None:
    """Do the job, and again after each change of a file below the paths, until interrupted.

    command_line: what it says about the settings, which may exclude files.
    changed: waits until the files are no longer as they were.
    """
    wait = changed or wait_for_change

    def look() -> Snapshot:
        return snapshot(paths, command_line)

    try:
        while True:
            before = look()
            click.clear()
            try:
                job()
            except SystemExit:
                pass  # wrong settings may be mended
            click.echo("Watching for changes; Ctrl-C ends it.", err=True)
            wait(look, before)
    except KeyboardInterrupt:
        click.echo(err=True)


def wait_for_change(look: Look, before: Snapshot) -> None:
    while True:
        start = time.monotonic()
        if look() != before:
            return
        time.sleep(max(PAUSE, (time.monotonic() - start) * SHARE))


def snapshot(paths: Sequence[Path], command_line: CommandLine | None = None) -> Snapshot:
    """When the files, and the settings of their projects, were last written, and their sizes."""
    files = {str(file.path) for file in discover(paths, _Excluded(command_line))[0]}
    files |= {str(project_root(path) / "pyproject.toml") for path in paths}
    result = {}
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            continue
        result[file] = (status.st_mtime_ns, status.st_size)
    return result


class _Excluded:
    """Whether the settings exclude a file or folder; wrong ones exclude nothing."""

    def __init__(self, command_line: CommandLine | None) -> None:
        self._finder = SettingsFinder(command_line)

    def __call__(self, path: Path, is_folder: bool) -> bool:
        try:
            return self._finder.of_folder(path.absolute().parent).excludes(path, is_folder)
        except SettingsError:
            return False
