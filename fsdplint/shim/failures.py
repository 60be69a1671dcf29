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
        yield f"  rank {end.rank}: {end.status}" + (f" at {shown(end.where)}" if end.where else "")
        yield f"    last event: {end.last}"
    errors = {end.error for end in run.ends if end.error}
    for error in sorted(errors)[:2]:
        yield from (f"    {line}" for line in error.strip().splitlines()[-12:])
