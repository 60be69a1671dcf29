"""Describes failed runs, rank by rank."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fsdplint.runtime.launch.endings import RankEnd
from fsdplint.runtime.launch.launcher import Run

_USAGE = re.compile(r"^\s*usage:", re.IGNORECASE | re.MULTILINE)


def relative_path(path: str) -> str:
    """A path for a report: relative if it is below the current folder."""
    here = os.getcwd() + os.sep
    return path.removeprefix(here)


def failure_lines(name: str, run: Run) -> Iterator[str]:
    """A report of a failed run: the last event of every rank, and the errors."""
    yield f"{name} failed" + (f": {run.problem}" if run.problem else "")
    for end in run.ends:
        how = f" ({end.error})" if end.status == "died" and end.error else ""
        at = f" at {relative_path(end.where)}" if end.where else ""
        yield f"  rank {end.rank}: {_status(end)}{at}{how}"
        yield f"    last event: {_with_relative_paths(end.last)}"
        if end.collective:
            yield f"    last collective: {end.collective}"
    errors = {end.error for end in run.ends if end.error and end.status != "died"}
    for error in sorted(errors)[:2]:
        yield from (f"    {line}" for line in error.strip().splitlines()[-12:])


def failure_summary(run: Run, name: str) -> str:
    """Why a run failed, in one line."""
    parts = [run.problem] if run.problem else []
    for end in run.ends:
        if end.status == "ok":
            continue
        text = f"rank {end.rank}: {_status(end)}"
        if end.where:
            text += f" at {relative_path(end.where)}"
        if end.status == "raised":
            text += f": {end.cause}"
        elif end.status == "died" and end.error:
            text += f": {end.error}"
        elif end.last and end.status != "exit":
            text += f" (last: {_with_relative_paths(end.last)}"
            text += f"; last collective: {end.collective})" if end.collective else ")"
        parts.append(text)
    missing = run.launch.world - len(run.ends)
    if missing == 1:
        parts.append("one rank was not started")
    elif missing > 1:
        parts.append(f"{missing} ranks were not started")
    return f"the program {name}: " + "; ".join(parts)


def fail_in_same_way(before: Run, after: Run) -> bool:
    """Whether both runs failed in the same way.

    That is, with the same exception or exit code on some rank, or with a timeout in both. The line
    is not compared: ranks that wait for others may hang in different lines.
    """
    return bool(_failure_kinds(before) & _failure_kinds(after))


def refused_arguments(run: Run) -> str:
    """The usage that a program prints if it rejects its arguments; empty if it accepts them.

    `argparse`, `click` and similar libraries print the usage and exit with code 2.
    """
    texts = [end.error.strip() for end in run.ends if end.cause == "exit code 2"]
    usages = [text[match.start() :] for text in texts if (match := _USAGE.search(text))]
    return usages[0] if usages and len(texts) == len(run.ends) else ""


def refused_arguments_text(script: Path, usage: str) -> str:
    """The message for a program that rejects its arguments."""
    return f"{script.name} rejects these arguments; give its own arguments after `--`\n{usage}"


def _failure_kinds(run: Run) -> set[str]:
    kinds = {"hung" if end.status == "hung" else end.cause for end in run.ends}
    return kinds - {""}


def _status(end: RankEnd) -> str:
    return f"ended with {end.cause}" if end.status == "exit" else end.status


def _with_relative_paths(text: str) -> str:
    """A text with paths below the current folder made relative."""
    return text.replace(os.getcwd() + os.sep, "")
