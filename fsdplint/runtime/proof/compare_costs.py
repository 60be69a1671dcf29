"""What two runs cost: time, memory and traffic. Told, not judged: a change may cost something."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from fsdplint.runtime.launch.records import Line, RankRecord
from fsdplint.runtime.proof.checks import Check, Side

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def _in_time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def costs(before: Side, after: Side) -> list[Check]:
    """Step time as a ratio, the memory of the rank that needs most, and bytes of collectives.

    The time of a step on CPU ranks is that of gloo and of the other processes: it tells nothing
    about GPUs, and is left out.
    """
    timed = not any(record.head.get("emulated") for record in (*before.records, *after.records))
    checks = [
        _cost_check("step time", before, after, _seconds, _in_time) if timed else None,
        _cost_check("peak memory of a rank", before, after, _peak, in_bytes),
        _cost_check("bytes of collectives a step", before, after, _traffic, in_bytes),
    ]
    return [check for check in checks if check is not None]


def _cost_check(
    name: str,
    before: Side,
    after: Side,
    of: Callable[[RankRecord], float | None],
    say: Callable[[float], str],
) -> Check | None:
    values = [[of(record) for record in side.records] for side in (before, after)]
    known = [[value for value in side if value is not None] for side in values]
    if not all(known):
        return None
    ours, theirs = max(known[0]), max(known[1])
    ratio = f" ({theirs / ours:.2f} times)" if ours else ""
    detail = f"{say(ours)} before, {say(theirs)} after{ratio}"
    return Check(name, None, detail, binding=False, values={"before": ours, "after": theirs})


def settled(record: RankRecord) -> list[Line]:
    """The steps but for the first one, which makes the optimizer's state and warms up."""
    return record.measures[1:] or record.measures


def _seconds(record: RankRecord) -> float | None:
    lines = settled(record)
    return statistics.median(line["seconds"] for line in lines) if lines else None


def _peak(record: RankRecord) -> float | None:
    return max((line["peak"] for line in record.measures if line.get("peak")), default=None)


def _traffic(record: RankRecord) -> float | None:
    lines = settled(record)
    return statistics.median(line["bytes"] for line in lines) if lines else None


def in_bytes(count: float) -> str:
    """A number of bytes for people."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    return f"{count:.2f} {_UNITS[-1]}"
