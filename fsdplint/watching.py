"""`--watch`: the same again whenever a file changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from fsdplint.files import discover, project_root

PAUSE = 0.5  # seconds between two looks
SHARE = 10  # a look may take this part of the time

Snapshot = dict[str, tuple[int, int]]


def watch(
    paths: Sequence[Path],
    job: Callable[[], object],
    changed: Callable[[Sequence[Path], Snapshot], None] | None = None,
) -> None:
    """Do the job, and again after each change of a file below the paths, until interrupted.

    changed: waits until the files are no longer as they were.
    """
    wait = changed or wait_for_change
    try:
        while True:
            before = snapshot(paths)
            click.clear()
            try:
                job()
            except SystemExit:
                pass  # wrong settings may be mended
            click.echo("Watching for changes; Ctrl-C ends it.", err=True)
            wait(paths, before)
    except KeyboardInterrupt:
        click.echo(err=True)


def wait_for_change(paths: Sequence[Path], before: Snapshot) -> None:
    while True:
        start = time.monotonic()
        if snapshot(paths) != before:
            return
        time.sleep(max(PAUSE, (time.monotonic() - start) * SHARE))


def snapshot(paths: Sequence[Path]) -> Snapshot:
    """When the files, and the settings of their projects, were last written, and their sizes."""
    files = {str(file.path) for file in discover(paths)[0]}
    files |= {str(project_root(path) / "pyproject.toml") for path in paths}
    result = {}
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            continue
        result[file] = (status.st_mtime_ns, status.st_size)
    return result
