"""Many facts that one gap hides, as one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fsdplint.comparison.compare import ABSENT, Compared, Outcome
from fsdplint.comparison.sharding import UNIT


def join_units(found: Iterable[Compared]) -> list[Compared]:
    """The facts; the units of a model that one version alone shows, since the other one hides which
    it has, are one."""
    result: list[Compared] = []
    joined: dict[tuple[str, str, bool], list[int]] = {}
    for one in found:
        absent = (one.before == ABSENT, one.after == ABSENT)
        if one.topic == UNIT and one.outcome is Outcome.NOT_FOLLOWED and one.reason and any(absent):
            root = one.subject.partition(".")[0]
            joined.setdefault((root, one.reason, absent[0]), []).append(len(result))
        result.append(one)
    dropped: set[int] = set()
    for (root, _, first_absent), numbers in joined.items():
        if len(numbers) > 1:
            text = f"{len(numbers)} units"
            first = replace(result[numbers[0]], subject=root)
            first = replace(first, after=text) if first_absent else replace(first, before=text)
            result[numbers[0]] = first
            dropped.update(numbers[1:])
    return [one for number, one in enumerate(result) if number not in dropped]
