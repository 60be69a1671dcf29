"""Differences between two texts of a file, in the format of `patch` and `git apply`."""

from __future__ import annotations

import difflib
import re

NO_NEWLINE = "\\ No newline at end of file\n"


def unified_diff(path: str, old: str, new: str) -> str:
    """A unified diff, "" if the texts are the same.

    Lines keep the file's line ends: the carriage return of a CRLF file is part of the diff's lines,
    so that the patch applies. A file whose only newline is the carriage return is shown with line
    feeds.
    """
    if old == new:
        return ""
    if "\n" not in old and "\r" in old:
        old, new = old.replace("\r", "\n"), re.sub(r"\r\n?", "\n", new)
    # A name with a space must end in a tab.
    name = f"{path}\t" if " " in path else path
    parts = [f"--- {name}\n", f"+++ {name}\n"]
    difference = difflib.unified_diff(_lines(old), _lines(new), lineterm="\n")
    for number, line in enumerate(difference):
        if number < 2:
            continue  # the header of the diff itself
        parts.append(line)
        if not line.endswith("\n"):
            parts.append("\n" + NO_NEWLINE)
    return "".join(parts)


def _lines(text: str) -> list[str]:
    """The lines with their line feeds. `str.splitlines` would also split at form feeds."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
