"""The paths of files without the values that a program puts into them."""

from __future__ import annotations

import re

_HOLE = re.compile(r"\{[^{}]*\}")
_TEXTS = re.compile(r"""("[^"]*"|'[^']*')""")


def form_of(path: str) -> str:
    """A path without the values in its f-strings; "" if no text is left by which to know it."""
    form = path
    while _HOLE.search(form):
        form = _HOLE.sub("<>", form)
    if form == path:
        return path
    texts = "".join(_TEXTS.findall(form)).replace("<>", "")
    return form if re.search(r"\w", texts) else ""


def name_within(path: str, folder: str) -> str:
    """The form of the name of a file in a folder; "" if it is not known to be in there."""
    if not folder:
        return ""
    for start, end in ((f"os.path.join({folder}, ", ")"), (f"{folder} / ", ""), (f"{folder}/", "")):
        if path.startswith(start) and path.endswith(end):
            return form_of(path[len(start) : len(path) - len(end)])
    return ""
