"""The names of functions that draw random numbers, as `Unknown.library` has them."""

from __future__ import annotations

import re

# The library of numbers that a generator of torch draws, with a seed that all ranks share.
SAME_DRAWS = "torch.Generator"
_RANDOM = re.compile(r"rand|normal|choice|sample|shuffle|seed|time\b|uuid", re.I)


def may_be_random(library: str) -> bool:
    """Whether a function may give another result in each process."""
    return _RANDOM.search(library) is not None
