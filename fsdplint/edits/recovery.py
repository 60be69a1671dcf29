"""Handle interrupted writes. Only a run that writes completes them.

A run that writes nothing does not check files after a partial write, because nobody wrote that
program. It reports the interrupted write and ends.
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
    """The result of handling the journals that were found.

    Attributes:
        written: the files that got their new content.
        foreign: messages about journals of another user or folder, which are not completed.
    """

    written: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def recover(
    arguments: Iterable[Path], searched: Iterable[str] = (), *, writes: bool = False
) -> Recovered:
    """Complete the interrupted writes of files and folders.

    Args:
        arguments: the files and folders.
        searched: the journals that a search of the folders found.
        writes: whether the run writes source files.

    Raises:
        Interrupted: a write is incomplete and the run writes nothing, or it cannot be completed.
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
            if real in near:  # foreign journals in parent folders do not concern this project
                recovered.foreign.append(str(error))
    return recovered


def _folders(arguments: Iterable[Path]) -> tuple[list[str], list[str]]:
    """The folders from the arguments up to the roots of their projects, and the folders above.

    A journal above the roots belongs to a write of several projects. It can exist only in a
    writable folder.
    """
    own: dict[str, None] = {}
    parents: dict[str, None] = {}
    for argument in arguments:
        real = Path(os.path.realpath(argument))
        root = project_root(real)
        for folder in (real, *real.parents):
            if os.access(folder, os.W_OK) and os.path.isdir(folder):
                (own if folder.is_relative_to(root) else parents)[str(folder)] = None
    return list(own), [folder for folder in parents if folder not in own]


def _real(path: str) -> str:
    """The real path of a journal; the journal itself must not be a link."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)
