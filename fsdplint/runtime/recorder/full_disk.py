"""What a full disk looks like in the words of those who could not write."""

from __future__ import annotations

import errno
import re

_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WORDS = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    # torch's writer does not say why it could not write, only that less has come out than went in.
    "PytorchStreamWriter failed writing file",
)
_POSITION = re.compile(r"inline_container\.cc:\d+\] \. unexpected pos")


def is_full(error: BaseException | str) -> bool:
    """Whether an error, or the text of one, says that there is no room for a file."""
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return True
    text = str(error)
    return any(word in text for word in _WORDS) or _POSITION.search(text) is not None
