"""What was counted in a simulation, as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from fsdplint.shim.compare_costs import in_bytes
from fsdplint.shim.failures import failed, shown
from fsdplint.shim.launcher import Run
from fsdplint.shim.records import Line
from fsdplint.shim.simulation.runs import Simulated, steps_of

_HELD = ("parameters", "gradients", "optimizer", "peak")
_TITLES = {"optimizer": "optimizer state", "peak": "most at once"}


def as_text(simulated: Simulated) -> str:
    """A table of what one rank holds and sends, and what went wrong."""
    return "\n".join(_lines(simulated)) + "\n"


def _lines(simulated: Simulated) -> Iterator[str]:
    yield f"{shown(str(simulated.script))}: rank 0 of {simulated.world}, without values"
    columns = {name: steps_of(run) for name, run in simulated.runs.items()}
    last = {name: steps[-1] for name, steps in columns.items() if steps}
    if last:
        yield ""
        yield _row("", list(last))
        for key in _HELD:
            yield _row(_TITLES.get(key, key), [in_bytes(line[key]) for line in last.values()])
        for kind in sorted({kind for line in last.values() for kind in line["calls"]}):
            yield _row(f"{kind} a step", [_traffic(line, kind) for line in last.values()])
        steps = ", ".join(f"{len(columns[name])} {name}" for name in last)
        yield f"  steps: {steps}; the numbers are those of the last one"
    for name, run in simulated.runs.items():
        if not run.ok:
            yield ""
            yield from failed(f"The program {name}", run)
        elif not columns[name]:
            yield ""
            yield f"The program {name} made no optimizer step."
    if simulated.remaining:
        yield ""
        yield f"{len(simulated.remaining)} findings have no fix; `fsdplint check` shows them."


def _row(title: str, cells: list[str]) -> str:
    return f"  {title:<22}" + "".join(f"{cell:>28}" for cell in cells)


def _traffic(line: Line, kind: str) -> str:
    calls = int(line["calls"].get(kind, 0))
    return f"{calls} calls, {in_bytes(line['sent'].get(kind, 0))}" if calls else "none"


def as_json(simulated: Simulated) -> dict[str, Any]:
    """Everything, for other programs to read; bytes are numbers."""
    return {
        "script": str(simulated.script),
        "simulated": True,
        "world_size": simulated.world,
        "ok": simulated.ok,
        "diff": simulated.diff,
        **{name: _run(run) for name, run in simulated.runs.items()},
    }


def _run(run: Run) -> dict[str, Any]:
    keys = (*_HELD, "step", "calls", "sent")
    return {
        "status": run.status,
        "problem": run.problem,
        "seconds": run.seconds,
        "ranks": [dataclasses.asdict(end) for end in run.ends],
        "steps": [{key: line[key] for key in keys} for line in steps_of(run)],
        "output": {str(rank): text for rank, text in run.output.items()},
    }
