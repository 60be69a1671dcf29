"""Finds, monitors and ends the processes of a run, with Linux's /proc where it exists."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path

# Set in the environment of a launched process, which must not outlive its parent.
LAUNCHED = "FSDPLINT_LAUNCHED"
_PROC = Path("/proc")
# The largest fraction of a processor that a waiting process uses.
_WAITING = 0.01


def descendants(pid: int) -> list[int]:
    """All living processes that `pid` started directly or indirectly."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir() if _PROC.exists() else ():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found.extend(below)
        todo.extend(below)
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty if there is no such process."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def start_time(pid: int) -> str:
    """When a process started, which distinguishes it from a later process with the same id."""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 else ""


def clock_ticks(pids: Iterable[int]) -> int:
    """The processor time of these processes in clock ticks."""
    total = 0
    for pid in pids:
        fields = _stat(pid)
        if len(fields) > 12:
            total += int(fields[11]) + int(fields[12])
    return total


class Idleness:
    """Measures for how long processes have only waited.

    Waiting takes some processor time: the threads of a process group poll for work.
    """

    def __init__(self) -> None:
        self._used = 0
        self._since = time.monotonic()

    def seconds(self, pids: Collection[int]) -> float:
        """Seconds since the processes last used more than a hundredth of a processor each."""
        now, used = time.monotonic(), clock_ticks(pids)
        most = _WAITING * os.sysconf("SC_CLK_TCK") * (now - self._since) * len(pids) + 2
        if not pids or not 0 <= used - self._used <= most:
            self._used, self._since = used, now
        return now - self._since


def alive(pid: int) -> bool:
    """Whether a process lives (a zombie does not)."""
    if _PROC.exists():
        fields = _stat(pid)
        return bool(fields) and fields[0] not in ("Z", "X")
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def signal_name(number: int) -> str:
    """The name of a signal: "SIGKILL" for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def end(pids: Iterable[int], patience: float = 5.0) -> list[int]:
    """Kill processes and wait until they are gone; returns those that are still alive."""
    pids = list(pids)
    send(pids, signal.SIGSTOP)  # so that no survivor reports the loss of its peers
    send(pids, signal.SIGKILL)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        pids = [pid for pid in pids if alive(pid)]
        if not pids:
            break
        time.sleep(0.02)
    return pids


def die_with_parent(parent: int | None = None) -> None:
    """Make the kernel kill this process when its parent ends (Linux only).

    parent: the process id of the parent, if the parent may have ended already.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:
            os._exit(1)
