"""A folder for the copies and records of one command, gone afterwards unless it is to be kept."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsdplint.shim import processes


class WorkplaceError(Exception):
    """The folder cannot be had; the text says why."""


@contextmanager
def workplace(command: str, keep: Path | None, shared: bool = False) -> Iterator[Path]:
    """A new folder for `fsdplint COMMAND`; `keep`, where it is given, stays.

    shared: other nodes use the folder too, and may have begun.

    Raises:
        WorkplaceError: the folder to keep cannot be made, or is not empty.
    """
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkplaceError(f"cannot make {keep}: {error}") from error
        if not shared and any(keep.iterdir()):
            raise WorkplaceError(f"{keep} is not empty; give --keep a new folder")
        yield keep.resolve()
        return
    prefix = f"fsdplint-{command}-"
    _sweep(prefix)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-")).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(prefix: str) -> None:
    """Remove the folders of commands that were killed and could not do it themselves."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*-*"):
        pid = folder.name[len(prefix) :].partition("-")[0]
        if pid.isdigit() and not processes.alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
