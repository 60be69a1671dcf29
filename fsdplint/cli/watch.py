"""`--watch`: run again whenever a file changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from fsdplint.config.command_line import CommandLine
from fsdplint.config.settings import SettingsError
from fsdplint.config.settings_files import OWN, SHARED
from fsdplint.config.settings_finder import SettingsFinder
from fsdplint.discovery.walk import discover
from fsdplint.source.folders import project_root

PAUSE = 0.5  # seconds between two snapshots
PAUSE_FACTOR = 10  # a pause is at least this many times as long as a snapshot

Snapshot = dict[str, tuple[int, int]]
TakeSnapshot = Callable[[], Snapshot]


def watch(
    paths: Sequence[Path],
    job: Callable[[], object],
    command_line: CommandLine | None = None,
    wait: Callable[[TakeSnapshot, Snapshot], None] | None = None,
) -> None:
    """Do a job now and after each change of a file below the paths, until interrupted.

    Args:
        paths: files and folders.
        job: the job.
        command_line: the settings of the command line, which may exclude files.
        wait: waits until the files differ from a snapshot.
    """
    wait = wait or wait_for_change

    def take() -> Snapshot:
        return snapshot(paths, command_line)

    try:
        while True:
            before = take()
            click.clear()
            try:
                job()
            except SystemExit:
                pass  # the user may correct wrong settings
            click.echo("Watching for changes; press Ctrl-C to stop.", err=True)
            wait(take, before)
    except KeyboardInterrupt:
        click.echo(err=True)


def wait_for_change(take: TakeSnapshot, before: Snapshot) -> None:
    while True:
        start = time.monotonic()
        if take() != before:
            return
        time.sleep(max(PAUSE, (time.monotonic() - start) * PAUSE_FACTOR))


def snapshot(paths: Sequence[Path], command_line: CommandLine | None = None) -> Snapshot:
    """The modification times and sizes of the files and of their projects' settings."""
    files = {str(file.path) for file in discover(paths, _Excluded(command_line))[0]}
    files |= {str(project_root(path) / name) for path in paths for name in (SHARED, OWN)}
    result = {}
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            continue
        result[file] = (status.st_mtime_ns, status.st_size)
    return result


class _Excluded:
    """Whether the settings exclude a file or folder; invalid settings exclude nothing."""

    def __init__(self, command_line: CommandLine | None) -> None:
        self._finder = SettingsFinder(command_line)

    def __call__(self, path: Path, is_folder: bool) -> bool:
        try:
            return self._finder.of_folder(path.absolute().parent).excludes(path, is_folder)
        except SettingsError:
            return False
