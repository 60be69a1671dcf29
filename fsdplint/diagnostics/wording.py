"""Lists of names and ranks in messages."""

from __future__ import annotations

from collections.abc import Sequence


def quote_names(items: Sequence[str], limit: int = 3) -> str:
    """Such as "`a` and `b`" and "`a`, `b`, `c` and 2 more"."""
    listed = [f"`{item}`" for item in items[:limit]]
    rest = len(items) - limit
    if rest > 0:
        return ", ".join(listed) + f" and {rest} more"
    if len(listed) > 1:
        return ", ".join(listed[:-1]) + " and " + listed[-1]
    return "".join(listed)


def names(items: Sequence[str], kind: str, limit: int = 3) -> str:
    """Such as "parameter `a`" and "parameters `a`, `b`, `c` and 2 more"."""
    return f"{kind}{'' if len(items) == 1 else 's'} {quote_names(items, limit)}"


def ranks(numbers: Sequence[int], limit: int = 4) -> str:
    """Such as "rank 0" and "ranks 1, 2 and 3"."""
    listed = [str(number) for number in numbers[:limit]]
    rest = len(numbers) - limit
    if rest > 0:
        return f"ranks {', '.join(listed)} and {rest} more"
    if len(listed) > 1:
        return f"ranks {', '.join(listed[:-1])} and {listed[-1]}"
    return f"rank {''.join(listed)}"
