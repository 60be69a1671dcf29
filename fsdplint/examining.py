"""The groups of a run's files, examined one after the other or in several processes.

Files of one group have nothing to do with those of another, so that each is a program of its own:
what one takes is given back before the next begins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsdplint.outcome import Outcome

WORTH_A_PROCESS = 150_000  # bytes of code, which take longer to examine than a process to start

Group = Sequence[Path]
_examine: Callable[[Group], Outcome]  # of the run whose groups are examined, for its processes


def examined(
    groups: Sequence[Group], examine: Callable[[Group], Outcome], processes: int = 1
) -> list[Outcome]:
    """What examining each group comes to, in order.

    Args:
        groups: the files of each.
        examine: examines one.
        processes: how many processes may be used; it depends on the groups how many pay.
    """
    sizes = [sum(_size(path) for path in group) for group in groups]
    number = min(processes, len(groups), sum(sizes) // WORTH_A_PROCESS)
    if number < 2 or not sys.platform.startswith("linux"):
        return [examine(group) for group in groups]
    import multiprocessing

    global _examine
    _examine = examine
    order = sorted(range(len(groups)), key=lambda at: -sizes[at])  # the longest first
    result: dict[int, Outcome] = {}
    # Forked processes have what the run has found out so far; elsewhere than on Linux that is not
    # safe, and processes that start anew cost more than they bring.
    with multiprocessing.get_context("fork").Pool(number) as pool:
        jobs = [(at, groups[at]) for at in order]
        for at, outcome in pool.imap_unordered(_one, jobs):
            result[at] = outcome
    return [result[at] for at in range(len(groups))]


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _one(job: tuple[int, Group]) -> tuple[int, Outcome]:
    at, group = job
    return at, replace(_examine(group), known={})


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
