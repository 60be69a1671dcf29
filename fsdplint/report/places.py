"""Paths relative to the top of the repository, for CI services."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

# Variables in which CI services give the folder of the checkout.
_VARIABLES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR", "BUILD_SOURCESDIRECTORY")


def top() -> Path:
    """The folder of the checkout, or the current folder."""
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
    """The path relative to a folder, with slashes; None if it is outside of the folder."""
    relative = os.path.relpath(os.path.abspath(path), folder)
    if relative.startswith(os.pardir):
        return None
    return relative.replace(os.sep, "/")


def uri(path: str) -> str:
    """A path as a URI reference (RFC 3986)."""
    return quote(os.fsencode(path), safe="/")
