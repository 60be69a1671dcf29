"""What a run does about writes that were interrupted: only one that writes completes them.

A run that writes nothing does not judge files of which some are written and some are not: no
program that anybody wrote is like that. It says so and ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fsdplint.edits import journal
from fsdplint.source.folders import project_root


@dataclass
class Recovered:
    """What became of the journals that were found.

    Attributes:
        written: the files that were brought to their new content.
        foreign: what is said of journals that are not completed, because they are of another user
            or another folder.
    """

    written: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def recover(
    arguments: Iterable[Path], searched: Iterable[str] = (), *, writes: bool = False
) -> Recovered:
    """Complete the interrupted writes that concern files and folders.

    Args:
        arguments: the files and folders.
        searched: the journals that a search of the folders came to.
        writes: whether the run writes source files.

    Raises:
        Interrupted: a write waits and the run writes nothing, or it cannot be completed.
    """
    recovered = Recovered()
    within, above = _folders(arguments)
    near = {_real(path): path for path in [*searched, *journal.journals_in(within)]}
    far = {_real(path): path for path in journal.journals_in(above)}
    for real, path in {**far, **near}.items():
        try:
            if writes:
                recovered.written += map(os.path.relpath, journal.complete(path))
            elif journal.is_waiting(path):
                raise journal.Interrupted(
                    f"an interrupted run of fsdplint has to be completed ({path}): "
                    f"`fsdplint --fix {os.path.relpath(os.path.dirname(real))}` completes it; "
                    "or remove that file to leave the files as they are"
                )
        except journal.ForeignJournal as error:
            if real in near:  # what others leave in a folder above is not this project's
                recovered.foreign.append(str(error))
    return recovered


def _folders(arguments: Iterable[Path]) -> tuple[list[str], list[str]]:
    """The folders from those of the arguments up to the roots of their projects, and what lies
    above: the journal of a write of several projects does. It can only be where one may write."""
    within: dict[str, None] = {}
    above: dict[str, None] = {}
    for argument in arguments:
        real = Path(os.path.realpath(argument))
        root = project_root(real)
        for folder in (real, *real.parents):
            if os.access(folder, os.W_OK) and os.path.isdir(folder):
                (within if folder.is_relative_to(root) else above)[str(folder)] = None
    return list(within), [folder for folder in above if folder not in within]


def _real(path: str) -> str:
    """The real path of a journal, which itself may be no link."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)
