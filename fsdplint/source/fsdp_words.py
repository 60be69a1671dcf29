"""The words by which code is recognised as being about FSDP, for texts and for bytes."""

from __future__ import annotations

import re

_FSDP1 = re.compile(r"FullyShardedDataParallel|torch\.distributed\.fsdp\b(?!\._)")


def names_fsdp1(text: str) -> bool:
    """Whether a text names FSDP1's class or its package."""
    return _FSDP1.search(text) is not None
