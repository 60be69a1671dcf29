"""The report of a simulation as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.report.result import plural
from fsdplint.report.sizes import format_bytes
from fsdplint.runtime.launch.failures import failure_lines, relative_path
from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.launch.records import Line
from fsdplint.runtime.proof.reports.data import end_data
from fsdplint.runtime.proof.simulated_runs import SimulationResult, steps_of
from fsdplint.version import __version__

if TYPE_CHECKING:
    from fsdplint.runtime.proof.reports import schema

HELD = ("parameters", "gradients", "optimizer", "peak")
_TITLES = {"optimizer": "optimizer state", "peak": "most at once"}


def as_text(simulated: SimulationResult) -> str:
    """A table of what one rank holds and sends, and the failures of runs."""
    return "\n".join(_lines(simulated)) + "\n"


def _lines(simulated: SimulationResult) -> Iterator[str]:
    yield title(simulated)
    rows = table(simulated)
    if rows:
        yield ""
        yield _row("", list(last_steps(simulated)))
        yield from (_row(name, cells) for name, cells in rows)
        yield "  " + steps_text(simulated)
    for problem in problems(simulated):
        yield ""
        yield problem
    if simulated.remaining:
        yield ""
        yield remaining_text(simulated)


def title(simulated: SimulationResult) -> str:
    return f"{relative_path(str(simulated.script))}: rank 0 of {simulated.world}, without values"


def last_steps(simulated: SimulationResult) -> dict[str, Line]:
    """The account of the last step of each run that made a step."""
    steps = {name: steps_of(run) for name, run in simulated.runs.items()}
    return {name: lines[-1] for name, lines in steps.items() if lines}


def table(simulated: SimulationResult) -> list[tuple[str, list[str]]]:
    """Rows of what a rank holds and sends: a title, and a cell for each run."""
    last = last_steps(simulated)
    if not last:
        return []
    rows = [
        (_TITLES.get(key, key), [format_bytes(line[key]) for line in last.values()]) for key in HELD
    ]
    for kind in sorted({kind for line in last.values() for kind in line["calls"]}):
        rows.append((f"{kind} a step", [_traffic(line, kind) for line in last.values()]))
    return rows


def steps_text(simulated: SimulationResult) -> str:
    steps = ", ".join(
        f"{len(steps_of(simulated.runs[name]))} {name}" for name in last_steps(simulated)
    )
    return f"steps: {steps}; the numbers are those of the last step"


def problems(simulated: SimulationResult) -> list[str]:
    """A text for each run that failed or made no step."""
    found = []
    for name, run in simulated.runs.items():
        if not run.ok:
            found.append("\n".join(failure_lines(f"The program {name}", run)))
        elif not steps_of(run):
            found.append(f"The program {name} made no optimizer step.")
    return found


def remaining_text(simulated: SimulationResult) -> str:
    count = len(simulated.remaining)
    verb, pronoun = ("has", "it") if count == 1 else ("have", "them")
    return f"{plural(count, 'finding')} {verb} no fix; `fsdplint check` shows {pronoun}."


def _row(name: str, cells: list[str]) -> str:
    return f"  {name:<22}" + "".join(f"{cell:>28}" for cell in cells)


def _traffic(line: Line, kind: str) -> str:
    calls = int(line["calls"].get(kind, 0))
    return (
        f"{plural(calls, 'call')}, {format_bytes(line['sent'].get(kind, 0))}" if calls else "none"
    )


def as_json(simulated: SimulationResult) -> schema.Simulation:
    """The complete result; bytes are numbers."""
    data: schema.Simulation = {
        "schema_version": 1,
        "version": __version__,
        "script": str(simulated.script),
        "simulated": True,
        "world_size": simulated.world,
        "ok": simulated.ok,
        "diff": simulated.diff,
        "before": _run(simulated.before),
    }
    if simulated.after is not None:
        data["after"] = _run(simulated.after)
    return data


def _run(run: Run) -> schema.SimulatedRun:
    return {
        "status": run.status,
        "problem": run.problem,
        "seconds": run.seconds,
        "ranks": [end_data(end) for end in run.ends],
        "steps": [_step(line) for line in steps_of(run)],
        "output": {str(rank): text for rank, text in run.output.items()},
    }


def _step(line: Line) -> schema.SimulatedStep:
    return {
        "step": line["step"],
        "parameters": line["parameters"],
        "gradients": line["gradients"],
        "optimizer": line["optimizer"],
        "peak": line["peak"],
        "calls": line["calls"],
        "sent": line["sent"],
    }
