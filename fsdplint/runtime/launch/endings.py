"""How the program ended on each rank: its status, its place, and its last event."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdplint.runtime.launch.processes import signal_name
from fsdplint.runtime.launch.records import Line, RankRecord
from fsdplint.runtime.recorder.heartbeat import read_beats

# torchrun's report of a failed process, and the title of its report of the first failure.
_FAILED = re.compile(r"exitcode\s*:\s*(-?\d+) \(pid: (\d+)\)")
_ROOT = "Root Cause"
# The signals with which torchrun ends the other ranks after a failure.
_CLOSING = (signal.SIGTERM, signal.SIGKILL)
# The most characters of an exception in one line.
_LONGEST = 300


@dataclass
class RankEnd:
    """How the program ended on one rank.

    Attributes:
        status: "ok", "raised", "exit" (a code other than 0), "hung" (still running when the run was
            ended), "died" (killed by a signal), "stopped" (ended because another rank failed).
        where: the user's line of the exception, or the current line of a hung rank.
        last: the last event as text.
        error: the traceback, the signal that killed the rank, or its output before it exited.
        cause: the exception in one line, or the exit code.
        collective: the last collective that began, including FSDP's own, and its number.
    """

    rank: int
    status: str
    where: str = ""
    last: str = ""
    error: str = ""
    collective: str = ""
    cause: str = ""


def ends_of(records: Sequence[RankRecord], folder: Path, stopped: bool, log: Path) -> list[RankEnd]:
    """How each rank ended, read from the folder of the records.

    stopped: whether the launcher killed the ranks that were still running.
    log: the file with torchrun's output.
    """
    ends = [_end(record, folder, stopped) for record in records]
    beats = read_beats(folder)
    killed = _killed_processes(log)
    for end, record in zip(ends, records, strict=True):
        if end.rank in beats:
            end.collective = beats[end.rank].last
        pid = record.head.get("pid")
        if end.status == "died" and pid in killed:
            end.error = f"killed by {killed[pid]}"
        elif end.status == "died" and _knows_first_failure(ends, killed):
            end.status = "stopped"  # torchrun ends all ranks when one fails
    return ends


def _knows_first_failure(ends: Sequence[RankEnd], killed: dict[int, str]) -> bool:
    """Whether it is known which rank failed first."""
    return bool(killed) or any(end.status in ("raised", "exit") for end in ends)


def _killed_processes(log: Path) -> dict[int, str]:
    """The processes that were killed by a signal which torchrun did not send, with its name."""
    text = ""
    with contextlib.suppress(OSError):
        text = log.read_text(errors="replace")
    root = text.find(_ROOT)
    found: dict[int, str] = {}
    for match in _FAILED.finditer(text):
        number = -int(match[1])
        if number > 0 and (number not in _CLOSING or match.start() > root >= 0):
            found[int(match[2])] = signal_name(number)
    return found


def _end(record: RankRecord, folder: Path, stopped: bool) -> RankEnd:
    last = describe_last(record)
    if record.end is not None:
        where = record.end.get("error_at")
        return RankEnd(
            record.rank,
            str(record.end["status"]),
            where=f"{where[0]}:{where[1]}" if where else "",
            last=last,
            error=str(record.end.get("traceback", "")),
            cause=_exception_line(record.end),
        )
    where = _stack_line(folder / f"stack{record.rank}.txt")
    status = "hung" if stopped else "died"
    return RankEnd(record.rank, status, where=where or _line(record.events), last=last)


def _exception_line(end: Line) -> str:
    """The exception of a rank in one line, or its exit code."""
    if end["status"] == "exit":
        return f"exit code {end['code']}"
    words = [str(end.get("error") or ""), str(end.get("message") or "").strip()]
    if words[0] == "ProcessRaisedException":  # its text is the traceback of the process
        words = [words[1].rpartition("\n")[2]]
    text = " ".join(": ".join(filter(None, words)).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _stack_line(path: Path) -> str:
    """The innermost line of the user's code in a stack written by faulthandler."""
    from fsdplint.runtime.recorder.sites import USER, kind_of

    with contextlib.suppress(OSError):
        text = path.read_text(errors="replace")
        for file, line in re.findall(r'File "([^"]+)", line (\d+)', text):
            if kind_of(file) == USER:
                return f"{file}:{line}"
    return ""


def _line(events: Sequence[Line]) -> str:
    if events and events[-1].get("at"):
        at = events[-1]["at"]
        return f"{at[0]}:{at[1]}"
    return ""


def describe_last(record: RankRecord) -> str:
    """The last event of a rank as text: "collective torch.distributed.barrier at train.py:12"."""
    if not record.events:
        return "nothing"
    event = record.events[-1]
    what = event.get("api") or event.get("via") or ""
    at = _line([event])
    module = record.modules.get(event.get("module") or "")
    subject = f" of {module['class_name']}" if module else ""
    text = " ".join(filter(None, [event["kind"], str(what)])) + subject
    return f"{text} at {at}" if at else text
