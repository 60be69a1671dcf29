"""How files are named where others look for them: from the top of the repository."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

# The folder of the checkout, as CI services tell it.
_VARIABLES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR", "BUILD_SOURCESDIRECTORY")


def top() -> Path:
    """The folder that paths are told from: the checkout's, else the current one."""
    here = Path.cwd()
    for variable in _VARIABLES:
        checkout = os.environ.get(variable)
        if checkout and here.is_relative_to(os.path.realpath(checkout)):
            return Path(os.path.realpath(checkout))
    for folder in (here, *here.parents):
        if os.path.exists(folder / ".git"):
            return folder
    return here


def from_top(path: str, folder: Path) -> str | None:
    """The path from a folder, with slashes; None where it lies elsewhere."""
    relative = os.path.relpath(os.path.abspath(path), folder)
    if relative.startswith(os.pardir):
        return None
    return relative.replace(os.sep, "/")


def uri(path: str) -> str:
    """A path as a reference in the sense of RFC 3986."""
    return quote(os.fsencode(path), safe="/")
