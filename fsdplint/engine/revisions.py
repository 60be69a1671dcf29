"""Programs as revisions of git have them. Nothing is checked out, and no hook runs."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path


class RevisionError(Exception):
    """A revision or path that does not exist."""


def extract(revision: str, folder: Path) -> None:
    """Write the files of a revision of the repository of the current folder into a folder.

    Raises:
        RevisionError: there is no such revision.
    """
    if not revision or revision.startswith("-"):
        raise RevisionError(f"{revision!r}: no such file, folder or revision")
    try:
        top = _git("rev-parse", "--show-toplevel").decode().strip()
        _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        content = _git("-C", top, "archive", "--format=tar", revision)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RevisionError(f"{revision}: no such file, folder or revision") from error
    with tarfile.open(fileobj=BytesIO(content)) as archive:
        for member in archive:
            if member.isfile() and _is_inside(member.name):
                file = folder / member.name
                file.parent.mkdir(parents=True, exist_ok=True)
                data = archive.extractfile(member)
                file.write_bytes(b"" if data is None else data.read())


def repository_path(path: Path) -> str | None:
    """The path of a file or folder in the repository of the current folder.

    Returns None if it is not in the repository, or if there is none.
    """
    try:
        top = Path(_git("rev-parse", "--show-toplevel").decode().strip())
        return path.resolve().relative_to(top.resolve()).as_posix()
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None


def _is_inside(name: str) -> bool:
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], capture_output=True, check=True)
    return done.stdout
