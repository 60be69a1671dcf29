"""Write changed files atomically: each file has either its old or its new content.

A new text is written to a temporary file in the same folder, which then replaces the old file in a
single step. All temporary files are written before the first replacement. If a later step fails,
the replaced files get their old content back. If the process is killed, the next run that writes
completes the write from the journal (`fsdplint.edits.journal`).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdplint.edits.atomic_file import replace_content, sync_folder, temporary_file
from fsdplint.edits.journal import Entry, journal
from fsdplint.source.folders import project_root
from fsdplint.source.reading import is_whole


@dataclass(frozen=True)
class NewContent:
    """The new content of a file.

    Attributes:
        path: the file; for a symbolic link, the file that it points to is replaced.
        old: the content when the file was read.
        new: the content to write.
    """

    path: str
    old: bytes
    new: bytes


class WriteError(OSError):
    """A file could not be written; all files have their old content."""


def write(files: Sequence[NewContent]) -> None:
    """Replace the content of all files, or of none.

    Raises:
        WriteError: a file changed since it was read, or cannot be written; the message says which.
    """
    if not files:
        return
    targets = [os.path.realpath(file.path) for file in files]
    for file, target in zip(files, targets, strict=True):
        with _error_names_file(file.path):
            _check_unchanged(file, target)
    entries = [Entry(t, file.old, file.new) for file, t in zip(files, targets, strict=True)]
    with contextlib.ExitStack() as stack:
        with _error_names_file(files[0].path):
            stack.enter_context(journal(_journal_folder(targets), entries))
        _replace_all(files, targets)


def _journal_folder(targets: Sequence[str]) -> str:
    """A writable folder above all of the files, at or above the root of their project.

    Raises:
        WriteError: there is none, so an interrupted write could not be completed.
    """
    folders = {os.path.dirname(target) for target in targets}
    with contextlib.suppress(ValueError):  # files on several drives have no common folder
        common = os.path.commonpath(folders)
        root = str(project_root(Path(common)))
        for folder in (root, common):
            if os.access(folder, os.W_OK) or len(folders) == 1 and folder == common:
                return folder
    raise WriteError(
        None,
        "the files cannot be written all or none: no folder that holds all of them is writable; "
        "nothing is changed; fix them in several runs",
    )


def _replace_all(files: Sequence[NewContent], targets: Sequence[str]) -> None:
    ready: list[tuple[NewContent, str, str]] = []  # with target and temporary file
    replaced: list[tuple[NewContent, str]] = []
    try:
        for file, target in zip(files, targets, strict=True):
            with _error_names_file(file.path):
                ready.append((file, target, temporary_file(target, file.new)))
        while ready:
            file, target, temporary = ready[0]
            with _error_names_file(file.path):
                _check_unchanged(file, target)
                os.replace(temporary, target)
            ready.pop(0)
            replaced.append((file, target))
    except BaseException:
        for _, _, temporary in ready:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        _put_back(replaced)
        raise
    for folder in {os.path.dirname(target) for _, target in replaced}:
        sync_folder(folder)


@contextlib.contextmanager
def _error_names_file(path: str) -> Iterator[None]:
    """Add the file, and that it is unchanged, to an operating system error."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        text = f"{path} cannot be written ({reason}); it is unchanged"
        raise WriteError(error.errno, text) from error


def _check_unchanged(file: NewContent, target: str) -> None:
    mode = os.stat(target).st_mode
    if not stat.S_ISREG(mode):
        raise WriteError(None, f"{file.path} is not a regular file; it is unchanged")
    if not os.access(target, os.W_OK):
        raise WriteError(None, f"{file.path} is write-protected; it is unchanged")
    if not is_whole(target, file.old):
        raise WriteError(
            None, f"{file.path} was changed by someone else in the meantime; run fsdplint again"
        )


def _put_back(replaced: Sequence[tuple[NewContent, str]]) -> None:
    """Restore the old content of replaced files as far as possible."""
    for file, target in replaced:
        with contextlib.suppress(OSError):
            replace_content(target, file.old)
