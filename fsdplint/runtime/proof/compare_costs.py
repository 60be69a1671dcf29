"""The costs of two runs: time, memory and traffic. They are information and not binding."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from fsdplint.report.sizes import format_bytes
from fsdplint.runtime.launch.records import Line, RankRecord
from fsdplint.runtime.proof.checks import Check, Side


def format_seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def cost_checks(before: Side, after: Side) -> list[Check]:
    """Checks of the step time, the peak memory of a rank, and the bytes of collectives.

    The step time of emulated devices is left out: it says nothing about GPUs.
    """
    timed = not any(record.head.get("emulated") for record in (*before.records, *after.records))
    checks = [
        _cost_check("step time", before, after, _seconds, format_seconds) if timed else None,
        _cost_check("peak memory of a rank", before, after, _peak, format_bytes),
        _cost_check("bytes of collectives a step", before, after, _traffic, format_bytes),
    ]
    return [check for check in checks if check is not None]


def _cost_check(
    name: str,
    before: Side,
    after: Side,
    of: Callable[[RankRecord], float | None],
    format_value: Callable[[float], str],
) -> Check | None:
    values = [[of(record) for record in side.records] for side in (before, after)]
    known = [[value for value in side if value is not None] for side in values]
    if not all(known):
        return None
    old, new = max(known[0]), max(known[1])
    ratio = f" ({new / old:.2f} times)" if old else ""
    detail = f"{format_value(old)} before, {format_value(new)} after{ratio}"
    return Check(name, None, detail, binding=False, values={"before": old, "after": new})


def steady_steps(record: RankRecord) -> list[Line]:
    """The steps after the first one, which creates the optimizer's state and warms up."""
    return record.measures[1:] or record.measures


def _seconds(record: RankRecord) -> float | None:
    lines = steady_steps(record)
    return statistics.median(line["seconds"] for line in lines) if lines else None


def _peak(record: RankRecord) -> float | None:
    return max((line["peak"] for line in record.measures if line.get("peak")), default=None)


def _traffic(record: RankRecord) -> float | None:
    lines = steady_steps(record)
    return statistics.median(line["bytes"] for line in lines) if lines else None
