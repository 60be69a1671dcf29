"""How a run that did not end well ended, rank by rank, for people."""

from __future__ import annotations

import os
from collections.abc import Iterator

from fsdplint.shim.launcher import Run


def shown(path: str) -> str:
    """A path as a person wants it: relative where it lies under the current folder."""
    here = os.getcwd() + os.sep
    return path.removeprefix(here)


def failed(name: str, run: Run) -> Iterator[str]:
    """The lines: what every rank did last and where, and the errors."""
    yield f"{name} did not end well" + (f": {run.problem}" if run.problem else "")
    for end in run.ends:
        how = f" ({end.error})" if end.status == "died" and end.error else ""
        at = f" at {shown(end.where)}" if end.where else ""
        yield f"  rank {end.rank}: {end.status}{at}{how}"
        yield f"    last event: {end.last.replace(os.getcwd() + os.sep, '')}"
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
        text = f"rank {end.rank} {end.status}"
        if end.where:
            text += f" at {end.where}"
        if end.error:
            text += f": {end.error.strip().splitlines()[-1][:300]}"
        elif end.last:
            text += f" (last: {end.last}"
            text += f"; last collective: {end.collective})" if end.collective else ")"
        parts.append(text)
    missing = run.launch.world - len(run.ends)
    if missing > 0:
        parts.append(f"{missing} ranks were not started")
    return f"the program {name}: " + "; ".join(parts)


def errors_of(run: Run) -> set[str]:
    """The exceptions that ended a run, each in the words of its last line."""
    return {
        end.error.strip().splitlines()[-1]
        for end in run.ends
        if end.status == "raised" and end.error
    }
