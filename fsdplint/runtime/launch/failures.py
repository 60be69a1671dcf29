"""How a run that did not end well ended, rank by rank, for people."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fsdplint.runtime.launch.endings import RankEnd
from fsdplint.runtime.launch.launcher import Run

_USAGE = re.compile(r"^\s*usage:", re.IGNORECASE | re.MULTILINE)


def relative_path(path: str) -> str:
    """A path as a person wants it: relative where it lies under the current folder."""
    here = os.getcwd() + os.sep
    return path.removeprefix(here)


def failed(name: str, run: Run) -> Iterator[str]:
    """The lines: what every rank did last and where, and the errors."""
    yield f"{name} did not end well" + (f": {run.problem}" if run.problem else "")
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


def failure(run: Run, name: str) -> str:
    """Why a run did not end well, in one line a rank."""
    parts = [run.problem] if run.problem else []
    for end in run.ends:
        if end.status == "ok":
            continue
        text = f"rank {end.rank}: {_status(end)}"
        if end.where:
            text += f" at {relative_path(end.where)}"
        if end.status == "raised":
            text += f": {end.said}"
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


def fail_alike(before: Run, after: Run) -> bool:
    """Whether both ended before their end in the same way.

    With the same exception or exit code on some rank, or both still running when the time was over:
    where a rank waits for others, they may well wait in another line.
    """
    return bool(_signs(before) & _signs(after))


def refused_arguments(run: Run) -> str:
    """What a program says that does not take its arguments: its usage; empty where it takes them.

    `argparse`, `click` and their kin write the usage and leave with exit code 2.
    """
    texts = [end.error.strip() for end in run.ends if end.said == "exit code 2"]
    usages = [text[match.start() :] for text in texts if (match := _USAGE.search(text))]
    return usages[0] if usages and len(texts) == len(run.ends) else ""


def arguments_wanted(script: Path, usage: str) -> str:
    """What is said of a program that does not take its arguments."""
    return f"{script.name} does not take these arguments; give its own after `--`\n{usage}"


def _signs(run: Run) -> set[str]:
    signs = {"hung" if end.status == "hung" else end.said for end in run.ends}
    return signs - {""}


def _status(end: RankEnd) -> str:
    return f"left with {end.said}" if end.status == "exit" else end.status


def _with_relative_paths(text: str) -> str:
    """A text with the files under the current folder named from there."""
    return text.replace(os.getcwd() + os.sep, "")
