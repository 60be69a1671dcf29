"""Features of the terminal."""

from __future__ import annotations

import os
from typing import IO, Any

# Names of terminal programs that support links (OSC 8).
_PROGRAMS = {"Hyper", "WezTerm", "ghostty", "iTerm.app", "rio", "terminology", "vscode", "zed"}
_TERMS = ("alacritty", "foot", "xterm-ghostty", "xterm-kitty")
_VARIABLES = ("DOMTERM", "KITTY_WINDOW_ID", "KONSOLE_VERSION", "WT_SESSION")
_OLDEST_VTE = 5000  # version 0.50


def colours(choice: str, stream: IO[Any]) -> bool:
    """Whether to write colours: the user's choice, else the environment's, else yes for a
    terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    for variable in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        if os.environ.get(variable, "0") not in ("", "0"):
            return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def links(stream: IO[Any]) -> bool:
    """Whether the stream goes to a terminal that is known to support links."""
    forced = os.environ.get("FORCE_HYPERLINK")
    if forced is not None:
        return forced not in ("", "0")
    if not stream.isatty():
        return False
    version = os.environ.get("VTE_VERSION", "")
    return (
        os.environ.get("TERM_PROGRAM") in _PROGRAMS
        or os.environ.get("TERM", "").startswith(_TERMS)
        or any(variable in os.environ for variable in _VARIABLES)
        or (version.isdigit() and int(version) >= _OLDEST_VTE)
    )
