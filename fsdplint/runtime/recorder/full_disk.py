"""Detects errors that are caused by a full disk."""

from __future__ import annotations

import errno
import re

_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WORDS = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    # torch's writer reports only that it wrote fewer bytes than it got.
    "PytorchStreamWriter failed writing file",
)
_POSITION = re.compile(r"inline_container\.cc:\d+\] \. unexpected pos")


def is_full(error: BaseException | str) -> bool:
    """Whether an error, or its text, reports that a file does not fit on the disk."""
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return True
    text = str(error)
    return any(word in text for word in _WORDS) or _POSITION.search(text) is not None
