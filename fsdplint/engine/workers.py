"""The groups of a session's files, checked one after the other or in several processes.

The groups are independent programs, so the memory of one is released before the next begins.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdplint.engine.progress import PROGRESS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from fsdplint.engine.group_result import GroupResult

WORTH_A_COLLECTION = 150_000  # bytes of code of earlier groups whose memory is worth releasing
WORTH_A_PROCESS = 150_000  # bytes of code that take longer to check than a process takes to start
LARGE = 200_000_000  # bytes of memory after which a process ends and a new one takes over

Group = Sequence[Path]


def check_groups(
    groups: Sequence[Group], check: Callable[[Group], GroupResult], processes: int = 1
) -> list[GroupResult]:
    """The results of all groups, in order.

    Args:
        groups: the files of each.
        check: checks one group.
        processes: the largest number of processes; small groups use fewer.
    """
    PROGRESS.begin("checking", len(groups))
    sizes = [sum(_size(path) for path in group) for group in groups]
    number = min(processes, len(groups), sum(sizes) // WORTH_A_PROCESS)
    if number < 2 or not sys.platform.startswith("linux"):
        return _one_by_one(groups, sizes, check)
    order = sorted(range(len(groups)), key=lambda at: -sizes[at])  # the longest first
    with WorkerPool(groups, check, number) as pool:
        result = pool.results(order)
    # A process that was killed leaves its group to this one.
    return [result[at] if at in result else check(groups[at]) for at in range(len(groups))]


def _one_by_one(
    groups: Sequence[Group], sizes: Sequence[int], check: Callable[[Group], GroupResult]
) -> list[GroupResult]:
    """The results of all groups, checked in this process.

    The objects of a group hold each other, so that only a collection releases their memory.
    """
    result, kept = [], 0
    for group, size in zip(groups, sizes, strict=True):
        if kept > WORTH_A_COLLECTION:
            gc.collect()
            kept = 0
        result.append(check(group))
        PROGRESS.advance()
        kept += size
    return result


class WorkerPool:
    """Processes that each check one group after the other.

    They are forked, so that they share what the session has read so far. On systems other than
    Linux, forking is not safe, and new processes cost more than they save. A pool of the standard
    library waits forever for the work of a killed process (out of memory, for example), and forks
    further processes beside its own threads.
    """

    def __init__(
        self, groups: Sequence[Group], check: Callable[[Group], GroupResult], number: int
    ) -> None:
        self._groups = groups
        self._check = check
        self._number = number
        self._members: dict[Connection, BaseProcess] = {}

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *error: object) -> None:
        for connection, process in self._members.items():
            connection.close()
            process.terminate()
            process.join()

    def results(self, order: Sequence[int]) -> dict[int, GroupResult]:
        """The results of the groups, given by their numbers, whose processes were not killed."""
        from multiprocessing.connection import wait

        result: dict[int, GroupResult] = {}
        ready: Any
        todo = list(reversed(order))
        while todo and len(self._members) < self._number:
            self._start(todo.pop())
        while self._members:
            for ready in wait(list(self._members)):
                try:
                    at, one, goes_on = ready.recv()
                except (EOFError, OSError):
                    goes_on = False
                else:
                    result[at] = one
                    PROGRESS.advance()
                if goes_on and todo and self._send(ready, todo[-1]):
                    todo.pop()
                    continue
                self._end(ready)
                if todo:
                    self._start(todo.pop())
        return result

    def _start(self, at: int) -> None:
        """Start a process that begins with a group."""
        import multiprocessing

        context = multiprocessing.get_context("fork")
        parent_end, child_end = context.Pipe()
        others = [parent_end, *self._members]  # the child closes them, so that it sees our end
        process = context.Process(target=self._work, args=(child_end, others), daemon=True)
        process.start()
        child_end.close()
        self._members[parent_end] = process
        self._send(parent_end, at)

    def _send(self, connection: Connection, at: int) -> bool:
        try:
            connection.send(at)
        except OSError:
            return False
        return True

    def _end(self, connection: Connection) -> None:
        connection.close()
        self._members.pop(connection).join()

    def _work(self, connection: Connection, others: Sequence[Connection]) -> None:
        """The work of a process: it checks the groups that it receives until the pool is closed."""
        for one in others:
            one.close()
        with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
            while True:
                at = connection.recv()
                result = replace(self._check(self._groups[at]), sources={})
                slim = _peak_memory() < LARGE
                connection.send((at, result, slim))
                if not slim:
                    return


def _peak_memory() -> int:
    """The most bytes that this process ever held."""
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def processors() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
