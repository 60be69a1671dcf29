"""The journal of an interrupted write, as a killed process leaves it."""

from __future__ import annotations

from pathlib import Path

from fsdplint.edits import journal


def leave_journal(folder: Path, *files: tuple[Path, bytes, bytes]) -> Path:
    """Put a journal into a folder.

    files: each with its old and new content.
    """
    entries = [journal.Entry(str(path), old, new) for path, old, new in files]
    with journal.journal(str(folder), entries):
        (path,) = journal.journals_in([folder])
        kept = Path(path).read_bytes()
    Path(path).write_bytes(kept)
    return Path(path)
